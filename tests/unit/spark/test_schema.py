from __future__ import annotations

import pytest
from pyspark.sql.types import ArrayType, StringType, StructType

from spark_ner.errors import ColumnError
from spark_ner.spark.schema import ENTITIES_SPARK, STATS_ARROW, STATS_SPARK, annotated_schema

TABLE = StructType().add("id", "long").add("text", "string", False).add("lang", "string").add("raw", "binary")


def test_the_types_that_tables_depend_on() -> None:
    assert ENTITIES_SPARK.simpleString() == (
        "array<struct<start:int,end:int,text:string,label:string,score:float>>"
    )
    assert STATS_SPARK.names == [field.name for field in STATS_ARROW]
    assert STATS_SPARK.names[:8] == [
        *("documents", "windows", "tokens", "padded_tokens", "words", "entities", "nulls", "errors")
    ]


def test_results_follow_the_table_s_own_columns() -> None:
    schema = annotated_schema(TABLE, text_col="text", stats_col="stats")
    assert schema.names == ["id", "text", "lang", "raw", "entities", "ner_error", "stats"]
    assert schema["text"].nullable is False
    assert annotated_schema(TABLE, text_col="raw").names[-2:] == ["entities", "ner_error"]


@pytest.mark.parametrize(
    ("table", "text_col", "message"),
    [
        (TABLE, "txt", "column \"txt\" not found; the table has: id, text, lang, raw; did you mean 'text'?"),
        (TABLE, "id", 'column "id" is bigint; text is wanted (string, or UTF-8 in binary)'),
        (
            StructType().add("text", "string").add("entities", "integer"),
            "text",
            'already has a column "entities"',
        ),
        (
            StructType().add("text", "string").add("a", "integer").add("a", "integer"),
            "text",
            "more than once: a; rename",
        ),
        (
            StructType().add("text", ArrayType(StringType())),
            "text",
            'column "text" is array<string>; text is wanted',
        ),
    ],
)
def test_a_table_that_cannot_be_annotated_is_refused_in_one_sentence(
    table: StructType, text_col: str, message: str
) -> None:
    with pytest.raises(ColumnError) as raised:
        annotated_schema(table, text_col=text_col)
    assert message in str(raised.value)


def test_the_figures_column_must_be_free() -> None:
    with pytest.raises(ColumnError, match='already has a column "lang"'):
        annotated_schema(TABLE, text_col="text", stats_col="lang")
