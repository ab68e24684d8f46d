from plugins.triggers import TimedDeterminant as TimedDeterminant
