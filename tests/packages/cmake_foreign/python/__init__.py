"""Counts stores, five for each."""

from foreign_tool import probes
from luthier import InstrumentationTask, Tool


class Stores(Tool):
    def instrument(self, task: InstrumentationTask) -> None:
        for instruction in task.instructions:
            if instruction.mnemonic.startswith("global_store"):
                task.insert_hook_before(instruction, probes.count)

    def expected(self, task, counts):
        stores = [i.index for i in task.instructions if i.mnemonic.startswith("global_store")]
        return {"stores": 5 * int(counts.executions[stores].sum())}
