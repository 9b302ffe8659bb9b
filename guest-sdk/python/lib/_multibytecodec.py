"""charset_normalizer asks whether a codec is one of those for Chinese, Japanese and Korean, which are not here."""


class MultibyteIncrementalDecoder: pass
