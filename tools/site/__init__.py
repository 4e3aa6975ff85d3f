"""The documentation site: what `mkdocs build` (mkdocs.yml, `make docs`) needs besides the pages in docs/.

`hooks`             what mkdocs calls: generated pages, links to files outside docs/
`links`             links in Markdown, and pages that show files outside docs/
`public`            the public names, read from docs/reference/public.md
`docstrings`        docstrings of this house as Markdown
`griffe_extension`  the same for mkdocstrings, and the signatures of structs
`reference`         the command line, experiment files and node.toml as Markdown, from commands and structs
`markdown`          escaping, lists of definitions, code
`check_links`       every link and anchor of the built site: `python -m tools.site.check_links site`
"""
