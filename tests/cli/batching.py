"""What the tests of batch share: jobs, their manifest, what came of them."""
import json
import re

from harness import SmallTest, parse_report


class BatchTest(SmallTest):
    def job(self, **more):
        """The fields of self.problem, with an output if nothing else is asked for."""
        if not {"output", "golden", "result", "command"} & set(more):
            more["output"] = "dw.npy"
        return {k: v for k, v in self.problem.job(**more).items() if v is not None}

    def manifest(self, *jobs, name="jobs.jsonl"):
        text = "".join(job if isinstance(job, str) else json.dumps(job) + "\n" for job in jobs)
        self.write(name, text)
        return name

    def batch(self, *args, status=0, **more):
        result = self.run_here("batch", *args, **more)
        self.assertEqual(result.status, status, str(result))
        return result

    def words(self, result):
        """{name: first word} of the jobs' lines, and the summary."""
        lines = result.out.splitlines()
        split = [re.match(r"(not run|\w+) +(\S+)", line) for line in lines[:-1]]
        return {m.group(2): m.group(1) for m in split}, lines[-1]

    def report(self, *args, **more):
        return parse_report(self.batch(*args, "--json", **more).out)
