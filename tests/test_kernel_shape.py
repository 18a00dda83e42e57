"""Every kernel has at most 60 lines and 8 parameters."""

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
MAX_LINES = 60
MAX_PARAMETERS = 8


def is_kernel(decorator):
    """Report whether a decorator is `@kernel` or `@kernel(...)`."""
    target = decorator.func if isinstance(decorator, ast.Call) else decorator
    return (isinstance(target, ast.Name) and target.id == "kernel") or (
        isinstance(target, ast.Attribute) and target.attr == "kernel"
    )


def kernels():
    """Yield the name, the number of lines and the number of parameters of every kernel."""
    for path in sorted((SOURCE / "nearcast").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and any(map(is_kernel, node.decorator_list)):
                arguments = node.args
                n_parameters = len(arguments.posonlyargs) + len(arguments.args) + len(arguments.kwonlyargs)
                name = f"{path.relative_to(SOURCE / 'nearcast')}:{node.name}"
                yield name, node.end_lineno - node.lineno + 1, n_parameters


def test_kernels_are_short_and_take_few_parameters():
    shapes = {name: (lines, parameters) for name, lines, parameters in kernels()}
    assert len(shapes) > 100, "the kernels were not found"
    too_large = {name: shape for name, shape in shapes.items() if shape[0] > MAX_LINES or shape[1] > MAX_PARAMETERS}
    assert not too_large, f"kernels with more than {MAX_LINES} lines or {MAX_PARAMETERS} parameters: {too_large}"
