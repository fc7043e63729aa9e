"""The generated code is fresh, and the check can tell when it is not."""

from pathlib import Path

from protos import generate

FILE = Path("protos/kubelet/podresources/v1/podresources_v1_pb2.py")


def test_the_code_checked_in_is_what_the_proto_files_make() -> None:
    assert generate.check() == []


def test_a_missing_a_stale_and_a_left_over_file_are_told_apart(tmp_path: Path) -> None:
    generate.generate(tmp_path)
    (tmp_path / FILE).unlink()
    grpc_file = FILE.with_name("podresources_v1_pb2_grpc.py")
    (tmp_path / grpc_file).write_text((tmp_path / grpc_file).read_text() + "edited = True\n")
    (tmp_path / FILE.with_name("old_v1_pb2.py")).write_text("")
    assert generate.check(tmp_path) == [
        f"{FILE.with_name('old_v1_pb2.py')}: left over, no .proto file makes it",
        f"{FILE}: missing",
        f"{grpc_file}: stale, 0 lines to add and 1 to remove",
    ]


def test_every_proto_file_makes_two_files_and_two_more_for_its_services() -> None:
    protos = list(generate.PACKAGE.rglob("*.proto"))
    made = [len(list(proto.parent.glob(f"{proto.stem}_pb2*.py*"))) for proto in protos]
    assert made == [4 if "\nservice " in proto.read_text() else 2 for proto in protos]
    assert len(generate.generated(generate.ROOT)) == sum(made)
