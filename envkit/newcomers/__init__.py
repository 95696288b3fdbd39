"""Help for users who type the words of Gymnasium, Stable-Baselines3 or EnvPool.

The contract asks for it through the entry points of the group `envkit.advice`: for
`words` when it makes a class, for `module_names` when a package lacks a name, for
`arguments` when a function lacks one, and for `unpacking` at the first calls of an
environment.
"""
