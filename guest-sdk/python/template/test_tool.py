"""python3 -m unittest: a tool is an ordinary function, so its test needs no host."""

import unittest

from tool import example_tool


class ExampleTool(unittest.TestCase):
    def test_greets_by_name(self):
        self.assertEqual(example_tool("Ada"), {"greeting": "Hello, Ada."})

    def test_greets_loudly(self):
        self.assertEqual(example_tool("Ada", tone="loud"), {"greeting": "HELLO, ADA."})

    def test_refuses_an_empty_name(self):
        with self.assertRaises(ValueError):
            example_tool(" ")


if __name__ == "__main__":
    unittest.main()
