import json
from typing import Any, get_args

import pytest

from extender.cli import console, inspection, top, top_rows
from extender.cli.top import View
from extender.cli.top_rows import Filters
from extender.wire.answers import Inspection
from tests.unit.cli import books
from tests.unit.cli.conftest import StatusPort
from tests.unit.cli.run import gangshare


@pytest.fixture
def cluster() -> Inspection:
    return inspection.decode(books.text(), Inspection)


def rows(cluster: Inspection, **view: Any) -> list[str]:
    return console.page(*top.render(cluster, View(**view))).splitlines()


def table(cluster: Inspection, **view: Any) -> list[str]:
    """The rows of the first table, below its headings."""
    page = rows(cluster, **view)
    return page[page.index("") + 2 :]


def test_the_summary_comes_first(cluster: Inspection) -> None:
    assert rows(cluster)[:4] == [
        "2 nodes, 4 GPUs: 0 wholly free, 1 in use as a whole, 1 shared, 2 not offered",
        "memory: 69 of 186 GiB free (37 %)",
        "2 pods bound with GPUs; 2 pods pending: 1 NoRoom, 1 GangAssembling",
        "problems: 1 malformed",
    ]


def test_by_default_each_node_has_a_row(cluster: Inspection) -> None:
    first, second = table(cluster)[:2]
    assert first.split() == [
        *("node-a", "NVIDIA", "A100-SXM4-80GB", "2", "0"),
        *("███░░░", "89/158", "GiB", "2", "ready"),
    ]
    assert second.split() == ["node-b", "Tesla", "T4", "2", "0", "░░░░░░", "0/28", "GiB", "1", "leaving"]


def test_by_model_each_model_has_a_row(cluster: Inspection) -> None:
    first, second = table(cluster, by="model")[:2]
    assert first.split() == ["NVIDIA", "A100-SXM4-80GB", "2", "0", "███░░░", "89/158", "GiB", "2"]
    assert second.split()[:4] == ["Tesla", "T4", "2", "0"]


def test_by_namespace_and_by_queue_the_pods_are_summed_up(cluster: Inspection) -> None:
    assert [row.split() for row in table(cluster, by="namespace")[:2]] == [
        ["default", "1.25", "89", "GiB", "2", "0"],
        ["ml", "0.00", "0", "GiB", "0", "2"],
    ]
    assert [row.split() for row in table(cluster, by="queue")[:2]] == [
        ["-", "1.00", "79", "GiB", "1", "2"],
        ["research", "0.25", "10", "GiB", "1", "0"],
    ]


def test_rows_with_most_come_first() -> None:
    made = [top_rows.Row("a", mem_free=1, pods={"x"}), top_rows.Row("b", mem_used=9), top_rows.Row("c", mem_free=7)]
    orders = {sort: "".join(row.name for row in top_rows.in_order(made, sort)) for sort in get_args(top_rows.Sort)}
    assert orders == {"name": "abc", "free": "cab", "used": "bac", "pods": "abc"}


def selected(cluster: Inspection, **filters: str) -> Inspection:
    return top_rows.selected(cluster, Filters(**filters))


def test_filters_are_globs_that_ignore_case(cluster: Inspection) -> None:
    assert [node.name for node in selected(cluster, node="*-A").nodes] == ["node-a"]
    assert [node.name for node in selected(cluster, model="*t4*").nodes] == ["node-b"]
    assert selected(cluster, node="node").nodes == ()


def test_a_filter_of_pods_shows_these_pods_and_their_gpus(cluster: Inspection) -> None:
    research = selected(cluster, queue="research")
    assert [(node.name, [gpu.index for gpu in node.gpus]) for node in research.nodes] == [("node-a", [0])]
    assert [pod.name for pod in research.pods] == ["train"]
    ml = selected(cluster, namespace="ml")
    assert (ml.nodes, [pod.name for pod in ml.waiting]) == ((), ["hungry", "resnet-0"])
    assert [gang.name for gang in ml.groups] == ["resnet"]


def test_a_filter_of_nodes_leaves_pending_pods_out(cluster: Inspection) -> None:
    found = selected(cluster, node="node-a")
    assert (found.waiting, found.groups) == ((), ())
    assert {pod.name for pod in found.pods} == {"train", "big"}


def test_a_cordoned_node_offers_nothing() -> None:
    idle = books.a_node("n", books.a_gpu(0, "GPU-0"))
    free, cordoned = (
        inspection.decode(books.text({"nodes": [{**idle, "unschedulable": value}]}), Inspection)
        for value in (False, True)
    )
    assert "1 wholly free" in rows(free)[0]
    assert "0 wholly free, 0 in use as a whole, 0 shared, 1 not offered" in rows(cordoned)[0]
    assert table(cordoned)[0].split()[-1] == "cordoned"


def test_only_the_first_pending_pods_are_shown_unless_all_are_wanted() -> None:
    pods = [{**books.BOOKS["waiting"][0], "uid": f"{number}", "name": f"p{number}"} for number in range(25)]
    cluster = inspection.decode(books.text({"waiting": pods}), Inspection)
    assert rows(cluster)[-1] == "and 15 more: -o wide shows all"
    assert rows(cluster, everything=True)[-1].startswith("ml/p24")
    assert rows(cluster)[1] == "0 pods bound with GPUs; 25 pods pending: 25 NoRoom", "nothing is said of no memory"


def test_the_page_fits_80_columns(cluster: Inspection) -> None:
    for by in get_args(top_rows.By):
        _, *parts = top.render(cluster, View(by=by))
        assert max(map(len, console.page(*parts, width=80).splitlines())) <= 80


def test_each_gpu_has_a_row_with_its_memory_and_slices(cluster: Inspection) -> None:
    shared, whole = table(cluster, by="gpu")[:2]
    assert shared.split() == [
        *("node-a", "0", "NVIDIA", "A100-SXM4-80GB", "ok"),
        *("█░░░░░", "10/79", "GiB", "25/100", "1"),
    ]
    assert whole.split() == ["1", "ok", "██████", "79/79", "GiB", "whole", "1"]


def test_what_is_not_offered_says_why(cluster: Inspection) -> None:
    sick, cordoned, lost = table(cluster, by="gpu")[2:5]
    assert "node-b (leaving)" in sick
    assert "sick:xid 79" in sick
    assert "cordoned" in cordoned
    assert lost.split() == ["?", "└", "default/lost", "on", "some", "GPU"]


def test_pods_are_named_on_wish_with_what_each_takes(cluster: Inspection) -> None:
    _, train, _, big, *_ = table(cluster, pods=True)
    assert train.split() == ["└", "default/train", "10", "GiB", "25"]
    assert big.split() == ["└", "default/big", "79", "GiB", "whole"]


def test_colours_are_for_terminals(cluster: Inspection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b" not in console.page(*top.render(cluster))
    assert "\x1b[31msick:xid 79" in console.page(*top.render(cluster, View(by="gpu")), colours=True)


def test_who_waits_is_told_with_the_sentence_and_the_numbers(cluster: Inspection) -> None:
    assert rows(cluster)[-1].split(maxsplit=2) == [
        *("ml/hungry", "3m5s"),
        "no GPU with 90 GiB free: needs 90 GiB on one GPU; freest: node-a GPU 0 with 69 GiB",
    ]


def test_text_from_the_cluster_is_printed_as_it_is() -> None:
    odd = a_node_with_problem("[red]unit[/red] :warning: is 256")
    assert "[red]unit[/red] :warning: is 256" in "\n".join(rows(odd))
    assert console.page("[bold]" + "x" * 300) == "[bold]" + "x" * 300 + "\n"


def a_node_with_problem(problem: str) -> Inspection:
    return inspection.decode(books.text({"nodes": [books.a_node("node-a", problem=problem)]}), Inspection)


def test_an_empty_cluster_is_no_error() -> None:
    assert "0 nodes, 0 GPUs" in "\n".join(rows(Inspection()))


def test_memory_past_the_gpu_is_a_full_bar() -> None:
    assert console.bar(1.5).plain == "█" * 6
    assert console.bar(0.001).plain == "█" + "░" * 5
    assert console.bar(0).plain == "░" * 6


@pytest.mark.parametrize(
    ("seconds", "text"), [(-1, "0s"), (12.9, "12s"), (60, "1m"), (185, "3m5s"), (7800, "2h10m"), (352800, "4d2h")]
)
def test_durations_read_as_kubectl_s(seconds: float, text: str) -> None:
    assert console.duration(seconds) == text


@pytest.mark.parametrize(("mib", "name"), [(1024, "GiB"), (1, "MiB"), (256, "×256MiB")])
def test_units_are_named(mib: int, name: str) -> None:
    assert console.unit(mib) == name


def test_the_command_reads_the_status_port(status_port: StatusPort, capsys: pytest.CaptureFixture[str]) -> None:
    ran = gangshare(capsys, "top", "--server", status_port.url)
    assert ran.code == 0
    assert "NVIDIA A100-SXM4-80GB" in ran.out
    assert "\x1b" not in ran.out


def test_the_server_may_come_from_the_environment(
    status_port: StatusPort, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANGSHARE_SERVER", f"{status_port.url}/")
    assert "node-b" in gangshare(capsys, "top").out


def test_json_is_what_inspect_says(status_port: StatusPort, capsys: pytest.CaptureFixture[str]) -> None:
    ran = gangshare(capsys, "top", "--output", "json", "--server", status_port.url)
    assert json.loads(ran.out) == books.BOOKS


def test_a_filter_narrows_what_programs_get_too(status_port: StatusPort, capsys: pytest.CaptureFixture[str]) -> None:
    ran = gangshare(capsys, "top", "--node", "node-a", "-o", "json", "--server", status_port.url)
    assert [node["name"] for node in json.loads(ran.out)["nodes"]] == ["node-a"]


def test_one_node_alone(status_port: StatusPort, capsys: pytest.CaptureFixture[str]) -> None:
    page = gangshare(capsys, "top", "--node", "node-a", "--by", "gpu", "--server", status_port.url).out
    assert "node-a" in page
    assert "node-b" not in page


def test_nobody_there_tells_how_to_get_there(status_port: StatusPort, capsys: pytest.CaptureFixture[str]) -> None:
    nobody = "http://127.0.0.1:1"
    ran = gangshare(capsys, "top", "--server", nobody)
    assert ran.code == 1
    assert nobody in ran.err
    assert "kubectl -n gangshare-system port-forward deploy/gangshare-scheduler 12346" in ran.err


def test_a_server_that_is_no_url_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert "server is 'localhost'" in gangshare(capsys, "top", "--server", "localhost").err


@pytest.mark.parametrize(
    ("code", "body", "said"),
    [(503, b"", "answered 503"), (200, b"<html>", "not its JSON"), (200, b'{"nodes":[{"name":3}]}', "nodes")],
)
def test_an_answer_that_is_no_inspection_is_told(
    code: int, body: bytes, said: str, status_port: StatusPort, capsys: pytest.CaptureFixture[str]
) -> None:
    status_port.code, status_port.answers = code, {"/inspect": body}
    ran = gangshare(capsys, "top", "--server", status_port.url)
    assert ran.code == 1
    assert said in ran.err


@pytest.mark.parametrize(
    ("code", "remedies"),
    [
        (401, ["kubectl create token"]),
        (403, ["port-forward deploy/gangshare-scheduler", "ClusterRole gangshare-viewer"]),
    ],
)
def test_a_refusal_says_what_to_do(
    code: int, remedies: list[str], status_port: StatusPort, capsys: pytest.CaptureFixture[str]
) -> None:
    status_port.code, status_port.answers = code, {"/inspect": b"ada may not\x1b[31m"}
    ran = gangshare(capsys, "top", "--server", status_port.url)
    assert ran.code == 1
    assert "ada may not\ufffd[31m" in ran.err
    assert "GANGSHARE_TOKEN" in ran.err
    assert [remedy for remedy in remedies if remedy not in ran.err] == []


def test_a_token_is_not_sent_where_others_read_it(
    status_port: StatusPort, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANGSHARE_TOKEN", "secret")
    ran = gangshare(capsys, "top", "--server", status_port.url)
    assert ran.code == 1
    assert "expected https://, or no GANGSHARE_TOKEN" in ran.err
    assert "secret" not in ran.err


def test_keys_of_a_newer_extender_are_no_error() -> None:
    newer = books.BOOKS | {"queues": [1]}
    assert inspection.decode(books.text(newer), Inspection) == inspection.decode(books.text(), Inspection)


def test_a_gang_has_one_line_for_all_its_members(cluster: Inspection) -> None:
    (line,) = [row for row in rows(cluster) if "ml/resnet" in row]
    assert line.split()[:4] == ["ml/resnet", "Assembling", "1m5s", "0/1"]
    assert line.endswith("gang ml/resnet waits for its members: 1 of 4 members exist")
