"""The cells of the example notebook run in order, as a kernel runs them."""

import ast
import json
import os
import unittest

from test_halognn import Case

NOTEBOOK = os.path.join(os.path.dirname(__file__), "..", "examples", "notebook.ipynb")


class TestNotebook(Case):
    def test_cells(self):
        with open(NOTEBOOK, encoding="utf-8") as f:
            cells = json.load(f)["cells"]
        os.chdir(self.dir)
        self.addCleanup(os.chdir, os.path.dirname(os.path.abspath(__file__)))
        names, shown = {}, []
        for i, cell in enumerate(c for c in cells if c["cell_type"] == "code"):
            tree = ast.parse("".join(cell["source"]))
            last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, f"cell {i}", "exec"), names)
            if last:
                value = eval(compile(ast.Expression(last.value), f"cell {i}", "eval"), names)
                shown.append(value)
        run, share = names["run"], next(v[2] for v in shown if isinstance(v, tuple))
        self.assertEqual(len(run.column("loss")), 8)
        self.assertGreater(share, 0.5)  # of four classes
        self.assertIn("<polyline", run._repr_html_())


if __name__ == "__main__":
    unittest.main()
