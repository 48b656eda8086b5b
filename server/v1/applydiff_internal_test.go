package v1

import (
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog/spec"
)

// A new row of the table is compared, without further code.
func TestANewSettingIsCompared(t *testing.T) {
	t.Parallel()
	table := []spec.Setting{{Name: "outer.brandNew", Section: spec.Advanced, Kind: spec.Whole}}
	require.Equal(t, []PropertyChange{{"outer.brandNew", "1", "2"}},
		changedProperties(table, []byte(`{"outer":{"brandNew":1}}`), []byte(`{"outer":{"brandNew":2}}`)))
}
