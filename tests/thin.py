"""What `make check` leaves to `make sweeps`: of tests with many cases every n-th runs, and of the longest tests none.

Where every n-th case runs, the first is another one for every test, so that a method that one test leaves out is in
another. Tests of `make quick` always run.
"""

from collections import Counter
from collections.abc import Iterable
from zlib import crc32

import pytest

from quick import name_of

EVERY = {
    # many cases of one kind
    "test_hostile_rules::test_a_thousand_fuzzed_replies": 22,
    "test_pairs::test_pairs_stay_finite_or_are_refused": 6,
    "test_flower::test_every_algorithm_equals_the_local_engine": 4,
    "test_local_optimizers::test_equals_the_oracle_with_torch_s_optimizer": 6,
    "test_gradient_counts::test_what_is_reported_is_what_was_taken": 5,
    "test_flower_hostile::test_hostile_replies_are_rejected": 4,
    "test_identities::test_equal": 3,
    "test_on_device::test_a_method_keeps_the_contract_and_has_the_bits_of_the_cpu": 4,
    "test_on_device::test_a_step_neither_waits_nor_copies": 4,
    "test_directions::test_the_order_and_the_names_of_clients_change_nothing": 4,
    "test_cli_start::test_nothing_slow_is_imported": 4,
    "test_fedsmoo::test_equals_its_oracle": 2,
    "test_flower_faults::test_r2_dropout_for_200_rounds": 3,
    "test_corruption::test_a_result_does_not_depend_on_the_batch": 4,
    "test_tuned_rows::test_only_the_head_is_tuned_and_only_at_evaluation": 3,
    "test_ray::test_optimizers_and_schedules": 9,
    "test_ray::test_clients_trained_together_in_any_groups": 3,
    "test_tutorials::test_a_tutorial_runs": 7,
    "test_own_scripts::test_a_killed_script_goes_on_to_the_same_bits": 4,
    "test_ray::test_equals_the_reference_to_the_bit": 3,
    "test_ray::test_unequal_work_and_a_selection_by_losses": 3,
    "test_modules::test_a_compiled_model_trains_as_the_plain_one": 3,
    "test_contract::test_block_keeps_the_contract": 10,
    "test_contract::test_algorithm_keeps_the_contract": 6,
    "test_contract::test_filter_keeps_the_contract": 8,
    "test_dry_runs::test_dry_run": 18,
    "test_start::test_frozen_parts_are_constants_to_the_bit": 5,
    "test_deployment::test_plain_text_is_refused": 2,
    "test_papers::test_an_item_has_its_number_and_what_its_figures_show": 4,
    "test_best::test_the_best_round_is_kept_besides_the_last_ones": 3,
    "test_kill::test_killed_at_random_moments": 2,
    "test_oracle::test_equals_its_oracle_with_weight_decay": 3,
    # long ones, which have a shorter one beside them
    "test_compose::test_whatever_composes_trains_and_the_rest_is_refused": 0,
    "test_compose::test_all_pairs_of_blocks_read_back": 0,
    "test_installed::test_the_example_is_listed_shown_and_keeps_the_contract": 0,
    "test_deployment::test_a_killed_server_app_goes_on_with_the_same_command_to_the_bit": 0,
    "test_flower_backend::test_flowers_own_simulation": 0,
    "test_flower_machine::test_every_client_counts_at_most_once_whatever_happens": 0,
    "test_own_scripts::test_one_hash_on_every_engine": 0,
    "test_own_scripts::test_a_script_has_a_run_folder": 0,
    "test_ray_cluster::test_states_on_the_nodes_own_disks_give_the_same_bits": 0,
    "test_ray_cluster::test_personal_models_are_read_from_the_nodes": 0,
    "test_ray_cluster::test_a_lost_node_hands_its_clients_to_the_others": 0,
    "test_ray_cluster::test_states_in_an_object_store_need_no_folder": 0,
    "test_ray::test_a_run_on_any_workers_has_one_hash": 0,
    "test_ray::test_workers_on_a_device_have_the_cpus_bits": 0,
    "test_ray::test_a_client_that_always_kills_its_worker_ends_the_run": 0,
    "test_ray::test_workers_killed_at_random_rounds_cost_no_client": 0,
    "test_ray::test_a_pool_that_fits_and_what_ray_costs": 0,
    "test_ray::test_every_worker_has_its_share_of_a_gpu": 0,
    "test_ray::test_states_stay_in_the_folder_given": 0,
    "test_ray::test_a_lost_state_sets_its_client_aside_or_ends_the_run": 0,
    "test_ray::test_probability_and_clients_own_models_on_workers_of_its_own": 0,
    "test_behind::test_on_ray": 0,
    "test_init::test_workers_start_alike": 0,
    "test_own_run::test_ray_gives_the_same_bits": 0,
    "test_hooks_slots::test_a_block_reads_what_other_slots_have_begun": 0,
    "test_hooks_slots::test_a_perturbation_with_a_state_of_its_own": 0,
    "test_hooks_personal::test_any_slot_may_hold_a_clients_own_model": 0,
    "test_ray::test_models_with_buffers_of_every_dtype_and_bfloat16_weights": 0,
    "test_cards::test_the_worked_example_keeps_the_contract": 0,
    "test_figure::test_clients_and_the_global_model_in_one_map": 0,
    "test_figure::test_bands_of_every_round_that_was_kept": 0,
    "test_packed::test_every_sum_survives_with_the_fewest_bytes": 0,
    "test_packed::test_blocks_have_widths_of_their_own": 0,
    "test_gradient_counts::test_steps_alone_follow_from_the_declarations": 0,
    "test_canary::test_a_traceback_shows_no_values": 0,
    "test_disk::test_a_limit_on_the_size_of_files": 0,
    "test_hooks_personal::test_a_client_may_enter_elsewhere_and_the_displacement_counts_it": 0,
    "test_sweep::test_streams_and_a_whole_look_stay_within_three_models": 0,
    "test_tasks::test_a_killed_script_is_run_again": 0,
    "test_stop::test_stops_at_random_moments": 0,
    "test_notebook::test_five_cells": 0,
    "test_peers::test_contenders_take_turns_and_agree": 0,
    "test_stated::test_ten_thousand_fuzzed_partial_sums": 0,
}
"""Test -> n: every n-th of its cases runs; 0 means none."""


def left(items: Iterable[pytest.Item]) -> tuple[list[pytest.Item], set[str]]:
    """The tests that `make check` leaves out, and the names of `EVERY` that no test has.

    Args:
        items: the collected tests, marked with `quick` where they are of `make quick`.
    """
    seen: Counter[str] = Counter()
    found = []
    for item in items:
        name = name_of(item)
        if name in EVERY and item.get_closest_marker("quick") is None:
            n = EVERY[name]
            if not n or (seen[name] + crc32(name.encode())) % n:
                found.append(item)
        seen[name] += 1
    return found, set(EVERY) - set(seen)
