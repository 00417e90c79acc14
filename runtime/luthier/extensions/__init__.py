"""Extensions of Luthier by installed packages, found through cached entry points."""
