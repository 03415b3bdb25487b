"""Sphinx's settings; `docs.site.build` copies this file beside the staged pages."""

import yuriiformer

project = "YuriiFormer"
author = "the YuriiFormer contributors"
version = release = yuriiformer.__version__
copyright = "the YuriiFormer contributors, MIT licence"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
]
exclude_patterns = ["**/.*"]
default_role = "code"
nitpicky = False

myst_heading_anchors = 4
myst_enable_extensions = ["attrs_inline", "colon_fence"]
suppress_warnings = ["myst.header"]  # a page may begin its outline at any level

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
viewcode_line_numbers = True

html_theme = "furo"
html_title = "YuriiFormer"
html_favicon = "_static/favicon.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "navigation_with_keys": False,
    "light_css_variables": {"color-brand-primary": "#0b5c93", "color-brand-content": "#0b5c93"},
    "dark_css_variables": {"color-brand-primary": "#6cb6ff", "color-brand-content": "#6cb6ff"},
}
copybutton_prompt_text = "$ "
html_extra_path = ["_files"]
html_show_search_summary = False  # a page of the file system may not fetch others
highlight_language = "none"  # a block without a language is text
