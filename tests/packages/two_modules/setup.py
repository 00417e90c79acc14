"""A host extension module beside the device modules."""

from setuptools import Extension, setup

setup(ext_modules=[Extension("two_modules._host", ["two_modules/host.cpp"])])
