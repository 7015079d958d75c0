"""Many shares at once on one vault: one bundle, and one winner where they differ."""

from collections.abc import Callable

from mooring.protocol.storage.ledger import Ledger


def test_many_shares_of_the_same_data_at_once_give_one_bundle(small_study, at_once):
    """Each as the command does it: the share, and then the record of it that the report reads."""
    data = [
        small_study.write_table(f"order-{k}.csv", list(range(20 + k % 20, 40)) + list(range(20, 20 + k % 20)))
        for k in range(16)
    ]
    vault = small_study.vaults[1]

    def share(k: int) -> Callable[[], None]:
        def action() -> None:
            shared = small_study.share(data=data[k], output=small_study.folder / f"out-{k}.bundle")
            vault.write(small_study.study.folder_name, "share.json", shared.to_json().encode())

        return action

    assert at_once([share(k) for k in range(16)]) == [0] * 16
    contents = {(small_study.folder / f"out-{k}.bundle").read_bytes() for k in range(16)}
    assert len(contents) == 1
    (entry,) = Ledger(vault.folder).entries()
    assert entry.bundle is not None
    assert not list(vault.folder.rglob("*.partial"))


def test_shares_at_once_to_one_output_leave_it_whole(small_study, at_once):
    data, output = small_study.table(1), small_study.folder / "out.bundle"
    assert at_once([lambda: small_study.share(data=data, output=output)] * 8) == [0] * 8
    assert not list(small_study.folder.glob(".*.partial"))
    again = small_study.folder / "again.bundle"
    small_study.share(data=data, output=again)
    assert output.read_bytes() == again.read_bytes()


def test_of_two_shares_of_different_data_at_once_exactly_one_wins(small_study, at_once):
    tables = [small_study.table(1), small_study.table(2)]
    for attempt in range(5):
        vault = small_study.copy_of_vault(f"attempt-{attempt}")
        outputs = [small_study.folder / f"{attempt}-{k}.bundle" for k in range(2)]
        actions = [
            lambda k=k, vault=vault, outputs=outputs: small_study.share(vault, tables[k], output=outputs[k])
            for k in range(2)
        ]
        codes = at_once(actions)
        assert sorted(codes) == [0, 3]
        assert [output.exists() for output in outputs] == [code == 0 for code in codes]


def test_of_two_studies_that_ask_for_the_same_rows_at_once_exactly_one_has_them(small_study, at_once):
    other, data = small_study.another(nonce="f" * 32), small_study.table(1)
    for attempt in range(5):
        vault = small_study.copy_of_vault(f"attempt-{attempt}")
        actions = [
            lambda k=k, item=each, vault=vault: item.share(vault, data, output=small_study.folder / f"{k}.bundle")
            for k, each in enumerate((small_study, other))
        ]
        assert sorted(at_once(actions)) == [0, 3]
