"""Read by pytest before every test."""
import signal
import sys
import types

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup has tests ignore it, and programs after them

# PyTorch's compiler takes longer to import than all the rest of it, which torchvision, torch.optim and
# torch.profiler do without compiling anything. In its place they get what they ask it for.
compiler = {name: types.ModuleType(name) for name in (
    "torch._dynamo", "torch._dynamo.utils", "torch._inductor", "torch._inductor.config")}
compiler["torch._dynamo"].disable = lambda function, *_, **__: function
compiler["torch._dynamo"].graph_break = lambda: None
compiler["torch._dynamo.utils"].is_compile_supported = lambda device: False
compiler["torch._inductor.config"].triton = types.SimpleNamespace(cudagraphs=False)
compiler["torch._inductor"].config = compiler["torch._inductor.config"]
sys.modules.update(compiler)
