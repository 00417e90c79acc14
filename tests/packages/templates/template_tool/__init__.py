from luthier import Tool


class Sample(Tool):
    pass
