"""The contract suite: what every index must do, one function a promise, each given a factory.

``CHECKS`` is the whole suite. It runs against every index (``test_contract``) and against wrong ones
(``test_canaries``), so a check says what is wrong by an AssertionError and knows nothing but the protocol.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.index.concurrency import answers_are_of_one_state
from tests.index.machine import any_history, any_history_of_floats
from tests.index.promises_of_answers import (
    batch_split_anywhere,
    borders_are_differences,
    crowded_border,
    duplicates,
    empty,
    every_attribute_counts,
    form_of_answers,
    full_cover,
    infinite_ends,
    missing_values,
    nan_is_nowhere,
    neighbouring_floats,
    one_box,
    shifted_coordinates,
    slots_of_several_boxes,
    touching,
)
from tests.index.promises_of_changes import (
    arguments_are_left_alone,
    bad_boxes,
    bad_points,
    double_insert,
    growth_and_decay,
    order_of_registration,
    remove_and_insert_again,
    unknown_removal,
)
from tests.index.small_worlds import any_boxes_any_points, small_world, small_world_of_pairs
from tests.index.worlds import Factory

CHECKS: tuple[Callable[[Factory], None], ...] = (
    empty,
    one_box,
    every_attribute_counts,
    duplicates,
    touching,
    neighbouring_floats,
    infinite_ends,
    missing_values,
    nan_is_nowhere,
    full_cover,
    remove_and_insert_again,
    unknown_removal,
    double_insert,
    bad_boxes,
    bad_points,
    crowded_border,
    slots_of_several_boxes,
    borders_are_differences,
    form_of_answers,
    arguments_are_left_alone,
    order_of_registration,
    batch_split_anywhere,
    shifted_coordinates,
    growth_and_decay,
    small_world,
    small_world_of_pairs,
    answers_are_of_one_state,
    any_boxes_any_points,
    any_history,
    any_history_of_floats,
)
