"""Mutation of the pure cores: which changes of the code do the tests notice?"""
