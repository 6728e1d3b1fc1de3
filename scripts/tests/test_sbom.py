"""Tests of the list of parts."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import sbom


def package(name, kind="lib", source="registry", **more):
    return {"id": name, "name": name, "version": "1.0.0", "source": source, "targets": [{"kind": [kind]}], **more}


METADATA = {
    "packages": [
        package("program", "bin", None, license="MIT"),
        package("part", license="MIT/Apache-2.0"),
        package("builder"),
        package("tester"),
        package("apart", "lib", None),
    ],
    "workspace_members": ["program", "apart"],
    "resolve": {
        "nodes": [
            {
                "id": "program",
                "deps": [
                    {"pkg": "part", "dep_kinds": [{"kind": None}, {"kind": "dev"}]},
                    {"pkg": "tester", "dep_kinds": [{"kind": "dev"}]},
                ],
            },
            {"id": "part", "deps": [{"pkg": "builder", "dep_kinds": [{"kind": "build"}]}]},
            {"id": "builder", "deps": []},
            {"id": "tester", "deps": []},
            {"id": "apart", "deps": []},
        ]
    },
}


class Sbom(unittest.TestCase):
    def test_what_is_linked_or_builds_is_listed_and_nothing_else(self):
        self.assertEqual(sorted(sbom.linked(METADATA)), ["builder", "part", "program"])

    def test_a_part_has_licence_and_checksum(self):
        part = sbom.component(METADATA["packages"][1], {("part", "1.0.0"): "ab"})
        self.assertEqual(part["licenses"], [{"expression": "MIT OR Apache-2.0"}])
        self.assertEqual(part["hashes"], [{"alg": "SHA-256", "content": "ab"}])
        self.assertEqual((part["purl"], part["type"]), ("pkg:cargo/part@1.0.0", "library"))

    def test_the_same_sources_give_the_same_list_and_others_another_number(self):
        first, again = (sbom.bill(METADATA, {}, "1.0.0") for _ in range(2))
        self.assertEqual(first, again)
        self.assertNotEqual(first["serialNumber"], sbom.bill(METADATA, {}, "1.0.1")["serialNumber"])
        references = {part["bom-ref"] for part in first["components"]}
        for dependency in first["dependencies"]:
            self.assertLessEqual(set(dependency["dependsOn"]), references)


if __name__ == "__main__":
    unittest.main()
