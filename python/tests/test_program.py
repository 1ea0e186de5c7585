"""What is passed to the program, and what is read of it, without running it."""

import os
import tempfile
import unittest

import numpy as np

from halognn import program

RULE = "-" * 70


class Program(unittest.TestCase):
    def test_ids_are_numbers_only_where_they_stay_as_written(self):
        for first, second, kind in ((["7", "-1"], ["10"], "i"), (["007"], ["1"], "U"),
                                    (["7"], ["a"], "U"), ([str(2**63)], ["1"], "U"), ([], [], "i")):
            arrays = program.source_arrays(first, second)
            self.assertEqual([a.dtype.kind for a in arrays], [kind, kind])
            self.assertEqual([list(map(str, a)) for a in arrays], [first, second])

    def test_links(self):
        with tempfile.TemporaryDirectory() as tmp:
            path = program.links_file([[1, 2], [3, 4]], tmp)
            np.testing.assert_array_equal(np.load(path), [[1, 2], [3, 4]])
            for pairs in (np.array([["a", "b"], ["c", "d"]]), np.array([["a", "b"], ["c", "d"]], object)):
                path = program.links_file(pairs, tmp)
                with open(path, encoding="utf-8") as f:
                    self.assertEqual(f.read(), "source,target\na,b\nc,d\n")
                self.assertEqual(os.path.splitext(path)[1], "")
            with open(program.links_file([["a b", 'c,"']], tmp), encoding="utf-8") as f:
                self.assertEqual(f.read(), 'source,target\na b,"c,"""\n')
            for bad in ([["a", ""]], ["a", "b"]):
                with self.assertRaises(ValueError):
                    program.links_file(bad, tmp)
            with self.assertRaises(TypeError):
                program.links_file([[0.5, 1]], tmp)

    def test_the_error_stands_between_blocks_of_mpirun(self):
        warning = f"{RULE}\nWARNING: a network is missing.\n{RULE}\n"
        end = (f"{RULE}\nPrimary job terminated normally, but 1 process returned\n{RULE}\n"
               f"{RULE}\nmpirun detected that one or more processes exited\n{RULE}")
        for before in ("", warning, warning + warning):
            said = f"{before}error: the parts are missing\n{end}"
            self.assertEqual(program.without_launcher(said), f"{before}error: the parts are missing")
        self.assertEqual(program.without_launcher("error: no parts"), "error: no parts")


if __name__ == "__main__":
    unittest.main()
