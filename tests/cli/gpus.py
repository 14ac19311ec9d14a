"""GPUs of the fake NVML (tests/device/fake_nvml.cpp) for the tests of the command line."""
import os
import pathlib

LIBRARY = pathlib.Path(os.environ["BRIM_BIN_DIR"]).parent / "lib" / "libfake_nvml.so"


class Gpus:
    """A made-up machine: its GPUs are lines of a file, which a test may change at any time."""

    def __init__(self, folder, count):
        self.path = folder / "gpus"
        self.lines = {"gpus": count, "driver": "580.65.06", "cuda": 13000}
        for gpu in range(count):
            self.lines.update({f"{gpu}.uuid": f"GPU-{gpu}aaa-bbb", f"{gpu}.name": "NVIDIA Fake",
                               f"{gpu}.memory_total": 80_000_000_000,
                               f"{gpu}.memory_used": 1_000_000_000, f"{gpu}.busy": 0})
        self.set()

    def set(self, **values):
        """g0_busy=97 is the line "0.busy = 97"."""
        for key, value in values.items():
            gpu, name = key.split("_", 1)
            self.lines[f"{gpu[1:]}.{name}"] = value
        text = "".join(f"{key} = {value}\n" for key, value in self.lines.items())
        new = self.path.with_suffix(".new")
        new.write_text(text)
        new.rename(self.path)

    def environment(self, **more):
        return {"BRIM_NVML_LIBRARY": str(LIBRARY), "BRIM_FAKE_NVML": str(self.path), **more}
