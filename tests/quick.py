"""The selection of `make quick`: a promise of every kind and a call into every module, in two minutes.

Tests are named, not copied: of the contract one block per signature of declarations, of the methods one per family,
and of everything else the tests in `TESTS`.
"""

import ast
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

import undrift
from undrift.algorithms import make
from undrift.compose.cards import family
from undrift.core.method.block import AnyBlock
from undrift.core.records.types import kinds

ROOT = Path(undrift.__file__).parent

TESTS = (
    # the core
    "test_golden::test_hashes_are_those_written_down",
    "test_buffers::test_two_rounds_of_every_dtype",
    "test_modules::test_names_are_those_of_the_plain_model",
    "test_precision::test_an_overflow_is_skipped_and_halves_the_scale",
    "test_compact::test_rows_are_sent_once_each",
    "test_together::test_equals_one_after_the_other",
    "test_together::test_losses_of_examples",
    "test_client::test_an_error_names_round_client_step_and_block",
    "test_contract::test_filter_keeps_the_contract",
    "test_contract::test_contract_catches",
    "test_gate::test_a_client_counts_once",
    "test_place::test_what_is_here_is_not_copied",
    "test_hooks_report::test_fedscam_reports_its_score_once_and_its_weights",
    "test_imports::test_no_files_import_in_a_circle",
    "test_packed::test_bytes_by_hand",
    "test_schedule::test_values_by_hand",
    "test_availability::test_a_trace_by_hand",
    "test_selection::test_candidates_are_drawn_by_examples",
    "test_unequal_work::test_fednova_reaches_the_optimum_where_fedavg_does_not",
    "test_wire::test_damage_is_found",
    "test_work::test_steps_by_hand",
    "test_removal::test_shares_of_a_layer",
    "test_center::test_positions_are_windows_and_pixels",
    "test_whiten::test_a_round_equals_a_loop_over_plain_tensors",
    "test_skew::test_tables_and_text",
    "test_advise::test_the_best_that_never_lost_comes_first",
    "test_advise_command::test_json_and_limits",
    # engines
    "test_backends::test_a_client_that_fails_is_rejected_and_the_round_goes_on",
    "test_flower::test_methods_that_gather_or_upload_every_kind_of_field",
    "test_flower_backend::test_every_option_of_a_simulation_works",
    "test_ray::test_equals_the_reference_to_the_bit",
    "test_devices::test_a_visit_is_measured_and_workers_are_chosen",
    "test_check_device::test_ratios_are_measured",
    "test_engine_record::test_the_command_line",
    "test_allocator::test_the_variable_decides_for_all",
    "test_visit_cost::test_expected_seconds_by_hand",
    "test_dispatch::test_nobody_is_waited_for_longer_than_asked",
    "test_node_store::test_a_worker_reads_its_own_disk_or_that_of_another",
    "test_object_store::test_damage_is_named",
    # papers
    "test_dry::test_trains_and_evaluates_one_round",
    "test_papers::test_an_experiment_runs_resumes_and_writes_its_numbers",
    "test_papers::test_costs_are_counted",
    "test_papers::test_the_command_lists_and_rehearses",
    "test_papers::test_the_page_lists_every_item",
    "test_stand_in::test_natural_clients_have_owners",
    "test_lowband::test_the_choice",
    "test_lowband::test_stays_within_two_millionths_of_the_transform",
    "test_lowband::test_a_gaussian_in_frequency_is_the_sum",
    "test_moments::test_muon_drives_singular_values_towards_one",
    "test_references::test_resolves_from_the_working_folder",
    "test_plugins::test_names_are_found_without_an_import",
    "test_installed::test_working_and_broken_plug_ins_are_told_apart",
    "test_terms::test_text_and_parse_are_inverses",
    "test_own_models::test_the_perceptron_reads_tables",
    "test_recorded::test_a_run_records_its_code_and_is_resumed",
    "test_jsonable::test_what_is_no_value_is_refused",
    "test_tables::test_bars_are_escaped_and_numbers_aligned",
    "test_bar::test_a_log_has_the_first_and_the_last_round",
    "test_history::test_tables_are_escaped_and_have_no_colours",
    # data and models
    "test_corrupt_run::test_accuracy_is_the_mean_over_the_types",
    "test_corruption::test_a_data_set_is_corrupted_sample_by_sample",
    "test_data::test_parquet_of_the_hub_s_schema",
    "test_digits::test_statistics_and_shape",
    "test_lists::test_a_function",
    "test_own::test_a_table",
    "test_own::test_functions",
    "test_own_run::test_the_partition_command",
    "test_data::test_shakespeare_from_a_text",
    "test_folders::test_domains_are_owners",
    "test_leaf::test_leaf_s_own_split",
    "test_models::test_output",
    "test_models::test_resnet_size",
    "test_models::test_the_lstm_reads_integers",
    "test_moon::test_blobs_are_skewed_and_the_same_at_every_call",
    "test_partition::test_every_sample_has_one_client",
    "test_start::test_each_difference_is_named",
    "test_vision::test_output",
    # runs, comparisons and what is seen of them
    "test_compare::test_the_command",
    "test_rows::test_a_part_overrides_a_row",
    "test_round_cost::test_a_measured_visit_gives_the_step",
    "test_round_cost::test_nothing_breaks",
    "test_plan_command::test_rounds_are_timed",
    "test_plan_command::test_the_machine_is_measured",
    "test_amounts::test_every_form_survives_its_file",
    "test_config::test_a_config_survives_its_file",
    "test_figure::test_the_command",
    "test_goals::test_tables_of_other_metrics",
    "test_loader_task::test_batches_with_names_and_clients_by_column",
    "test_tasks::test_a_run_equals_the_simulation_and_is_judged_by_the_first_metric",
    "test_tensor_task::test_evaluation_by_hand",
    "test_curvature::test_flatness_is_a_flat_record_of_all",
    "test_stream::test_sketches_of_small_cells_are_exact",
    "test_look::test_the_command",
    "test_named::test_every_form_gives_one_text",
    "test_variance::test_a_projection_splits_every_quantity",
    "test_report_index::test_every_run_has_a_row",
    "test_report_page::test_command",
    "test_figure_sweep::test_the_command",
    "test_run::test_a_run_explains_itself",
    "test_run::test_partition_and_doctor",
    "test_run::test_run_and_resume_from_the_command_line",
    "test_init::test_a_run_starts_from_weights_and_records_them",
    "test_python::test_evaluation_becomes_columns_and_changes_nothing",
    "test_saved::test_the_command",
    "test_tune::test_tune_judges_on_held_out_examples_and_runs_nothing_twice",
    "test_verify::test_an_intact_run_is_told_from_its_parts",
    # the command line, texts and helpers
    "test_cli_start::test_the_face_is_lazy_and_complete",
    "test_cli_start::test_the_names_are_those_of_the_registries",
    "test_progress::test_trials_are_counted",
    "test_demo::test_without_the_report_it_says_which_extra",
    "test_refusals::test_a_bad_value_is_answered_in_one_line",
    "test_rounds::test_every_file_counts_from_one",
    "test_rounds::test_a_run_of_which_every_upload_is_rejected_ends_with_an_error",
    "test_behind::test_rounds_are_stored_in_order",
    "test_cards::test_show_prints_a_card",
    "test_face::test_a_face_exports_what_it_says",
    "test_files::test_a_file_is_replaced_with_its_permissions",
    "test_literals::test_both_forms_say_the_same",
    "test_names::test_the_nearest_name_is_suggested",
    "test_presets::test_a_comparison_applies_it_to_every_row",
    "test_status::test_a_run_in_progress_in_words",
    "test_status::test_metrics_in_the_format_of_prometheus",
    "test_deploy::test_a_stopped_run_goes_on_and_an_ended_one_is_returned",
    "test_deploy::test_flower_exports_it",
    "test_new::test_an_empty_folder_is_filled_and_this_one_may_be_meant",
)
"""Tests by file and function; of one with parameters the first."""


def signature(slot: str, block: AnyBlock) -> tuple[object, ...]:
    """What a block declares, and its kind: blocks that agree in it take the same way through the core."""
    trees = (tuple(kinds(tree).values()) for tree in (block.Server, block.Client, block.Sent, block.Up))
    kind = next(base for base in type(block).__mro__ if base.__module__.startswith("undrift.core"))
    flags = (sorted(block.uses), block.keeps_buffers, block.personalizes, block.gradients > 0)
    return slot, kind, *trees, str(block.needs), str(flags)


def chosen(items: Iterable[pytest.Item]) -> dict[object, pytest.Item]:
    """The tests of the selection, by what each stands for: a signature, a family or a name."""
    found: dict[object, pytest.Item] = {}
    for item in items:
        key = _key(item)
        if key is not None:
            found.setdefault(key, item)
    return found


def name_of(item: pytest.Item) -> str:
    """The file and the function of a test, without the parameters of its case.

    Args:
        item: the test.
    """
    return f"{item.path.stem}::{getattr(item, 'originalname', None) or item.name}"


def _key(item: pytest.Item) -> object:
    """What a test stands for in the selection; None if it is not in it."""
    function = name_of(item).rpartition("::")[2]
    given: Mapping[str, Any] = item.callspec.params if hasattr(item, "callspec") else {}
    if function == "test_block_keeps_the_contract":
        return signature(given["slot"], given["block"])
    if function == "test_the_order_and_the_names_of_clients_change_nothing":
        return family(make(given["name"]))
    name = name_of(item)
    return name if name in TESTS else None


def untouched(used: Iterable[str]) -> list[str]:
    """The files of undrift that define functions of which none was called.

    Args:
        used: the files of all functions that were called.
    """
    trees = {str(path): ast.parse(path.read_text()) for path in ROOT.rglob("*.py")}
    defining = {path for path, tree in trees.items() if any(map(_does_something, ast.walk(tree)))}
    return sorted(defining - set(used))


def _does_something(node: ast.AST) -> bool:
    """Whether a node is a function with more than a docstring, as those of protocols have."""
    return isinstance(node, ast.FunctionDef) and not all(
        isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant) for line in node.body
    )
