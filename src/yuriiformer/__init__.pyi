# What the package offers: the one list. `__init__.py` reads it, so that a name is imported when it
# is first used, and shows the remarks in help(yuriiformer).

__version__: str

# Rules
from yuriiformer.methods.catalog import rules as rules  # all rules by name; the paper's 17 first
from yuriiformer.methods.rule import Rule as Rule  # a rule from its equations
from yuriiformer.methods.references import load_rule as load_rule  # a rule from a TOML file
from yuriiformer.methods.references import get_rule as get_rule  # a rule by name, file, variation
from yuriiformer.methods.coefficients import Coefficient as Coefficient  # its range and start
from yuriiformer.methods.interpreter import apply_rule as apply_rule  # one block on any tensors
from yuriiformer.methods.interpreter import run_rule as run_rule  # one block of any streams

# Models
from yuriiformer.model.config import ModelConfig as ModelConfig  # a model's sizes, rule and oracles
from yuriiformer.model.model import YuriiFormer as YuriiFormer  # the model: a torch module
from yuriiformer.model.block import RuleBlock as RuleBlock  # a block around modules of your own
from yuriiformer.model.files import save_model as save_model  # write a folder, without pickle
from yuriiformer.model.files import load_model as load_model  # read such a folder
from yuriiformer.runs.loading import open_model as open_model  # any model, with its tokeniser
from yuriiformer.model.oracles import OraclePair as OraclePair  # attention and MLP by kind
from yuriiformer.model.oracles import register_oracles as register_oracles  # name a pair

# Data
from yuriiformer.data.prepare import prepare as prepare  # text to tokens, two splits
from yuriiformer.data.store import TokenStore as TokenStore  # prepared data: two token files
from yuriiformer.data.order import BatchOrder as BatchOrder  # which tokens a step trains on
from yuriiformer.data.tokenizers import gpt2_tokenizer as gpt2_tokenizer  # GPT-2's BPE, offline

# Training
from yuriiformer.config import TrainConfig as TrainConfig  # a run's whole configuration
from yuriiformer.training.presets import preset as preset  # a ready-made configuration
from yuriiformer.training.session import train as train  # begin or resume a run
from yuriiformer.training.muon import Muon as Muon  # the optimiser of matrices
from yuriiformer.model.parameters import parameter_groups as parameter_groups  # what trains what

# Measuring
from yuriiformer.evaluation.evaluate import evaluate as evaluate  # validation loss and tasks
from yuriiformer.report.results import compare as compare  # runs over their seeds, in a table

# Looking inside
from yuriiformer.tracing.recorder import trace as trace  # what a model does through depth

# Errors
from yuriiformer.errors import YuriiError as YuriiError  # any error that a user can fix
