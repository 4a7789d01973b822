"""Who belongs to a group and how far it is: the group coordinator and its journal."""
