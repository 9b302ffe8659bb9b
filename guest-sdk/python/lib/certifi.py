"""For programs that ask where the certificate authorities are. The host checks certificates, with those of its system."""


def where():
    return "/usr/share/ca-certificates.crt"


def contents():
    with open(where()) as file:
        return file.read()
