from plugins.noise import Gaussian as Gaussian
from plugins.noise import SelfNormalised as SelfNormalised
