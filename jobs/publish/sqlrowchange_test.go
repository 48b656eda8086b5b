package publish_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/testnode"
)

// changes returns the events of row changes in their order, one a line.
func changes(t *testing.T, tn *testnode.Node) string {
	t.Helper()
	return "\n" + tn.Text(t, `SELECT string_agg(concat_ws(' | ', event_type, subject,
		    concat_ws('.', body #>> '{data,schema}', body #>> '{data,table}'), 'old ' || left(body #>> '{data,old}', 40),
		    'new ' || left(body #>> '{data,new}', 40), 'omitted ' || (body #>> '{data,omitted}')), E'\n'
		    ORDER BY published_at, system_id) || E'\n'
		FROM postrider.events WHERE topic = 'orders'`)
}

// The event names the table that the trigger was created on, not the partition that has the row.
func TestRowChangesOfPartitions(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	tn.Exec(t, `CREATE SCHEMA parts;
		CREATE TABLE public.readings (day date, nr integer, PRIMARY KEY (day, nr)) PARTITION BY RANGE (day);
		CREATE TABLE parts.year PARTITION OF public.readings FOR VALUES FROM ('2026-01-01') TO ('2027-01-01')
		    PARTITION BY RANGE (nr);
		CREATE TABLE parts.low PARTITION OF parts.year FOR VALUES FROM (0) TO (100);
		CREATE TRIGGER events AFTER INSERT OR UPDATE OR DELETE ON public.readings FOR EACH ROW
		    EXECUTE FUNCTION postrider.publish_row_change('orders');
		CREATE TABLE parts.high (nr integer NOT NULL, day date NOT NULL);
		ALTER TABLE parts.year ATTACH PARTITION parts.high FOR VALUES FROM (100) TO (200);
		CREATE TRIGGER middle AFTER DELETE ON parts.year FOR EACH ROW
		    EXECUTE FUNCTION postrider.publish_row_change('orders', 'Middle');
		CREATE TRIGGER own AFTER DELETE ON parts.high FOR EACH ROW
		    EXECUTE FUNCTION postrider.publish_row_change('orders', 'Own');
		CREATE TABLE public.parent (nr integer PRIMARY KEY); CREATE TABLE public.child () INHERITS (public.parent);
		CREATE TRIGGER events AFTER INSERT ON public.child FOR EACH ROW
		    EXECUTE FUNCTION postrider.publish_row_change('orders', '', 'nr')`)
	tn.Exec(t, "INSERT INTO public.readings VALUES ('2026-05-01', 7)")
	tn.Exec(t, "UPDATE public.readings SET nr = 107") // PostgreSQL deletes the row in one partition, and inserts it
	tn.Exec(t, "DELETE FROM public.readings")
	tn.Exec(t, "INSERT INTO public.child VALUES (1)")
	require.Equal(t, `
public.readings.Inserted | public/readings/2026-05-01/7 | public.readings | new {"nr": 7, "day": "2026-05-01"}
public.readings.Deleted | public/readings/2026-05-01/7 | public.readings | old {"nr": 7, "day": "2026-05-01"}
Middle.Deleted | parts/year/2026-05-01/7 | parts.year | old {"nr": 7, "day": "2026-05-01"}
public.readings.Inserted | public/readings/2026-05-01/107 | public.readings | new {"nr": 107, "day": "2026-05-01"}
public.readings.Deleted | public/readings/2026-05-01/107 | public.readings | old {"nr": 107, "day": "2026-05-01"}
Middle.Deleted | parts/year/2026-05-01/107 | parts.year | old {"nr": 107, "day": "2026-05-01"}
Own.Deleted | parts/high/2026-05-01/107 | parts.high | old {"nr": 107, "day": "2026-05-01"}
public.child.Inserted | public/child/1 | public.child | new {"nr": 1}
`, changes(t, tn))
}

// Names of schemas, tables and columns may contain anything.
func TestRowChangesWithQuotedNames(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	tn.Exec(t, `CREATE SCHEMA "My Shop"; CREATE TABLE "My Shop"."Größe ""L"", all" ("Order Id" integer, "a,b" text,
		    "say ""hi""" text, "select" text, " edge" text, "Ä" text);
		CREATE TRIGGER events AFTER INSERT ON "My Shop"."Größe ""L"", all" FOR EACH ROW EXECUTE FUNCTION
		    postrider.publish_row_change('orders', '', 'Order Id, "a,b","say ""hi""" ,say "hi", select,Ä, " edge"',
		        '"Order Id","a,b",say "hi", "select" , " edge"')`)
	tn.Exec(t, `INSERT INTO "My Shop"."Größe ""L"", all" VALUES (1, 'comma', 'quote', 'word', 'edge', 'umlaut')`)
	tn.Exec(t, "CREATE TABLE public.\"two\nlines\" (nr integer PRIMARY KEY); CREATE TRIGGER events AFTER INSERT ON "+
		"public.\"two\nlines\" FOR EACH ROW EXECUTE FUNCTION postrider.publish_row_change('orders')")
	tn.Exec(t, "INSERT INTO public.\"two\nlines\" VALUES (1)")
	require.Equal(t, `
My Shop.Größe "L", all.Inserted | My Shop/Größe "L", all/1/comma/quote/quote/word/umlaut/edge | `+
		`My Shop.Größe "L", all | new {"Ä": "umlaut"}
public.two lines.Inserted | public/two lines/1 | public.two
lines | new {"nr": 1}
`, changes(t, tn))
}

// A row that no event can hold is left out, and the transaction that changes it commits.
func TestRowChangesThatNoEventCanHold(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	tn.Exec(t, `CREATE TABLE public.files (nr integer PRIMARY KEY, doc json, body text);
		CREATE TRIGGER events AFTER INSERT OR UPDATE OR DELETE ON public.files FOR EACH ROW
		    EXECUTE FUNCTION postrider.publish_row_change('orders', 'File');
		CREATE TABLE public.slim (nr integer PRIMARY KEY, doc json, body text);
		CREATE TRIGGER events AFTER INSERT OR UPDATE OR DELETE ON public.slim FOR EACH ROW
		    EXECUTE FUNCTION postrider.publish_row_change('orders', 'Slim', '', 'body, doc')`)
	for _, statement := range []string{
		"INSERT INTO %s VALUES (1, NULL, repeat('x', 600000))", "UPDATE %s SET body = repeat('y', 600000)",
		"UPDATE %s SET body = repeat(E'\\x01', 600000)", "DELETE FROM %s",
		`INSERT INTO %s VALUES (2, '{"a": "\u0000"}')`, "UPDATE %s SET body = '-'", "DELETE FROM %s",
		"INSERT INTO %s VALUES (3, (repeat('[', 260) || repeat(']', 260))::json)",
		"UPDATE %s SET doc = (SELECT json_agg('{}'::json) FROM generate_series(1, 300))",
	} {
		tn.Exec(t, strings.ReplaceAll(statement, "%s", "public.files"))
	}
	require.Equal(t, `
File.Inserted | public/files/1 | public.files | new {"nr": 1, "doc": null, "body": "xxxxxxxx
File.Updated | public/files/1 | public.files | new {"nr": 1, "doc": null, "body": "yyyyyyyy | omitted ["old"]
File.Updated | public/files/1 | public.files | omitted ["old", "new"]
File.Deleted | public/files/1 | public.files | omitted ["old"]
File.Inserted | public/files/2 | public.files | omitted ["new"]
File.Updated | public/files/2 | public.files | omitted ["old", "new"]
File.Deleted | public/files/2 | public.files | omitted ["old"]
File.Inserted | public/files/3 | public.files | omitted ["new"]
File.Updated | public/files/3 | public.files | new {"nr": 3, "doc": [{}, {}, {}, {}, {}, {} | omitted ["old"]
`, changes(t, tn))

	tn.Exec(t, "DELETE FROM postrider_internal.events")
	tn.Exec(t, "INSERT INTO public.slim VALUES (1, NULL, repeat('x', 2000000))")
	tn.Exec(t, "UPDATE public.slim SET body = repeat('y', 2000000)")
	tn.Exec(t, "DELETE FROM public.slim")
	require.Equal(t, `
Slim.Inserted | public/slim/1 | public.slim | new {"nr": 1}
Slim.Updated | public/slim/1 | public.slim | old {"nr": 1} | new {"nr": 1}
Slim.Deleted | public/slim/1 | public.slim | old {"nr": 1}
`, changes(t, tn))
}
