from pathlib import Path

import pytest

from extender.sim import table
from extender.sim.openb import trace
from extender.sim.openb.trace import Node, Spec
from extender.sim.table import TraceError
from tests.unit.sim_openb.made import real_nodes, real_pods

NODE = "sn,cpu_milli,memory_mib,gpu,model"
POD = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec"


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "list.csv"
    path.write_text(text)
    return path


def test_the_real_lists_are_read_whole() -> None:
    nodes, pods = real_nodes(), real_pods()
    assert (len(nodes), trace.capacity(nodes), sum(node.cpu_milli for node in nodes)) == (1213, 6_212_000, 107_018_000)
    assert (len(pods), sum(pod.spec.gpu_milli for pod in pods)) == (8152, 6_086_800)
    assert nodes[0] == Node("openb-node-0000", 64000, 262144, 2, "P100")
    assert pods[1].spec == Spec(6000, 12288, 1, 460)


def test_columns_may_come_in_any_order_with_others_between(tmp_path: Path) -> None:
    path = written(tmp_path, "\ufeffgpu_spec,qos,name,gpu_milli,num_gpu,memory_mib,cpu_milli\nT4|A10,LS,p,500,1,20,3\n")
    assert trace.read_pods(path)[0].spec == Spec(3, 20, 1, 500, ("T4", "A10"))


def test_pods_of_a_list_without_models_accept_every_model(tmp_path: Path) -> None:
    path = written(tmp_path, "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,3,20,1,500\n")
    assert trace.read_pods(path)[0].spec == Spec(3, 20, 1, 500)


def test_a_node_without_gpus_has_no_model(tmp_path: Path) -> None:
    path = written(tmp_path, f"{NODE}\nbare,32000,262144,0,\nn,1,1,1,T4\n")
    assert trace.read_nodes(path)[0] == Node("bare", 32000, 262144, 0, "")


def test_models_are_the_same_in_small_letters_as_in_the_engine(tmp_path: Path) -> None:
    assert trace.read_nodes(written(tmp_path, f"{NODE}\nn,1,1,1,t4\n"))[0].model == "T4"
    assert trace.read_pods(written(tmp_path, f"{POD}\np,1,1,1,1000,t4|V100m16\n"))[0].spec.models == ("T4", "V100M16")


@pytest.mark.parametrize("name", ["a\x1b[31m", "a" * 254])
def test_a_name_that_cannot_be_shown_is_an_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(TraceError, match=r"line 2: sn is '.*': expected a name of at most 253 characters") as refused:
        trace.read_nodes(written(tmp_path, f"{NODE}\n{name},1,1,1,T4\n"))
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 300


def test_a_line_without_an_end_is_not_read_whole(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="line 2: more than 65536 characters: expected at most 65536"):
        trace.read_nodes(written(tmp_path, f"{NODE}\n" + "n" * 70_000))


def test_a_list_without_an_end_is_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "MOST_ROWS", 2)
    path = written(tmp_path, f"{NODE}\na,1,1,1,T4\nb,1,1,1,T4\n")
    assert len(trace.read_nodes(path)) == 2
    path.write_text(path.read_text() + "c,1,1,1,T4\n")
    with pytest.raises(TraceError, match="line 4: more than 2 rows: expected at most 2"):
        trace.read_nodes(path)


def test_a_column_named_twice_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="line 1: 2 columns are named 'gpu': expected one"):
        trace.read_nodes(written(tmp_path, f"{NODE},gpu\nn,1,1,1,T4,2\n"))
    with pytest.raises(TraceError, match="line 1: 305 columns: expected at most 256"):
        trace.read_nodes(written(tmp_path, NODE + "".join(f",c{i}" for i in range(300))))


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("n,x,1,1,T4", "line 2: cpu_milli is 'x': expected a whole number from 0 to 1000000000000"),
        ("n,-1,1,1,T4", "line 2: cpu_milli is '-1': expected a whole number from 0"),
        ("n,1,1.5,1,T4", "line 2: memory_mib is '1.5': expected a whole number from 0"),
        ("n,1,1,²,T4", "line 2: gpu is '²': expected a whole number from 0 to 256"),
        ("n,1,1,257,T4", "line 2: gpu is '257': expected a whole number from 0 to 256"),
        ('n,1,1,1,"T4,*"', "line 2: model is 'T4,*': expected GPU models of letters, digits and . _ -, at most 63"),
        ('"n\n",1,1,1,T4', "line 3: sn is 'n\\n': expected a name"),
        ("n,1,1,1,", "line 2: model is '': expected the GPU model of a node with GPUs"),
        (",1,1,1,T4", "line 2: sn is '': expected a name"),
        ("n,1,1,1,T4\n\nn,1,1,1,T4", "line 4: sn is 'n': expected a name other than that of line 2"),
        ("n,1,1,1", "line 2: 4 values: expected 5, as in the header"),
        ("n,1,1,1,T4,x", "line 2: 6 values: expected 5, as in the header"),
        ('n,1,1,1,"T4', "line 2: unexpected end of data: expected values divided by commas"),
        ("n,1,1,0,", "0 GPUs in all: expected a node with GPUs"),
        ("", "0 rows below the header: expected at least one"),
    ],
)
def test_a_bad_node_is_named(tmp_path: Path, row: str, sentence: str) -> None:
    path = written(tmp_path, f"{NODE}\n{row}\n")
    with pytest.raises(TraceError) as refused:
        trace.read_nodes(path)
    assert str(refused.value).startswith(str(path))
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("p,1,1,1,0,", "line 2: gpu_milli is '0': expected a whole number from 1 to 1000"),
        ("p,1,1,1,1001,", "line 2: gpu_milli is '1001': expected a whole number from 1 to 1000"),
        ("p,1,1,2,500,", "line 2: gpu_milli is '500': expected 1000"),
        ("p,1,1,0,500,", "line 2: gpu_milli is '500': expected 0"),
        (
            "p,1,1,1,500,T4||A10",
            "line 2: gpu_spec is 'T4||A10': expected at most 64 GPU models of letters, digits and . _ -",
        ),
        ("p,1,1,1,500,!T4", "line 2: gpu_spec is '!T4': expected at most 64 GPU models"),
        ("p,1,1,1,500," + "|".join(["T4"] * 65), "line 2: gpu_spec is 'T4|T4"),
        ("p,1,1,0,0,", "no pod requests a GPU: expected at least one that does"),
    ],
)
def test_a_bad_pod_is_named(tmp_path: Path, row: str, sentence: str) -> None:
    with pytest.raises(TraceError) as refused:
        trace.read_pods(written(tmp_path, f"{POD}\n{row}\n"))
    assert sentence in str(refused.value)


def test_a_file_that_is_no_list_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        TraceError, match="line 1: the columns are 'sn,gpu': expected cpu_milli, memory_mib, model among"
    ):
        trace.read_nodes(written(tmp_path, "sn,gpu\nn,1\n"))
    with pytest.raises(TraceError, match=r"cannot read .*absent.csv: No such file"):
        trace.read_nodes(tmp_path / "absent.csv")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TraceError, match="byte 0xff: expected text in UTF-8"):
        trace.read_nodes(tmp_path / "binary.csv")
