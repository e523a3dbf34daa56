"""An app that draws on people: it finds faces, eyes, hands and bodies in pictures, with several networks at once."""
