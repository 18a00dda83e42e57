"""The form of filter programs: the codes of tests, and the words of each.

word 0       code | attribute << 8 | number of operands << 32
words 1, 2   where to go on if the test is true, and if it is false: a word of the program, PASS or FAIL
then         the operands: term ids, ascending codes of values, or none; a phrase has its term ids, then their borders

A program without words tests the region only, as most do: then nothing is read but a line of the region.
"""

HOLDS, SIDE_BY_SIDE, AMONG, NOT_AMONG, LESS, LESS_OR_EQUAL, GREATER, GREATER_OR_EQUAL = range(1, 9)
IS_NULL, IS_KNOWN, IN_REGION = 9, 10, 11
"""Codes of tests: the message holds a term, or terms side by side; an attribute has one of some values, or none of
them, or compares so with a value; is null, is not; the location lies in the region of the subscription."""
OPERANDS = 3
"""The word at which operands begin."""
PASS, FAIL = -1, -2
