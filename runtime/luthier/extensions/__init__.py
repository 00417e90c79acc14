"""Extensions of Luthier by installed packages: their entry points, found without reading all metadata each time."""
