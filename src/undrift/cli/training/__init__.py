"""Commands that train: run, compare, tune, paper, plan, demo."""
