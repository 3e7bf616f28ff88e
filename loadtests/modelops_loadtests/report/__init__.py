"""The result for people: a page that opens without a network, Markdown, tables at the terminal."""

from modelops_loadtests.report.command import command as command
from modelops_loadtests.report.live import Live as Live
from modelops_loadtests.report.page import write as write
from modelops_loadtests.report.terminal import table as table
from modelops_loadtests.report.wording import longer as longer
from modelops_loadtests.report.wording import reason as reason
