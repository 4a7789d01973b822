"""The order gates that a coordinator holds for stock members, which hold none themselves."""
