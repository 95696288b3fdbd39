"""Batches compiled from the rules of one environment, written as plain Python.

```
Rules                the state's fields, the specs, and reset, step, observe
CompiledEnvironment  a batch whose rows keep these rules: native, or in plain Python
check_rules          compares the two, to the last bit
Rng                  the random numbers of a row, as the rules draw them
```

numba is imported only when a compiled batch is made.
"""

from envkit.envs.compiled.checking import check_rules
from envkit.envs.compiled.environment import CompiledEnvironment
from envkit.envs.compiled.rng import Rng
from envkit.envs.compiled.rules import Rules

__all__ = ["CompiledEnvironment", "Rng", "Rules", "check_rules"]
