package catalog

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"postrider/internal/postgres"
)

// KeyInUse is an encryption key that may have encrypted a stored secret, or a retired one.
type KeyInUse struct {
	KeyID     string     `json:"keyId"`
	CreatedAt time.Time  `json:"createdAt"` // first start of a node that encrypts with it
	RetiredAt *time.Time `json:"retiredAt"`
}

// NodeKeys are the keys that a running node knows: the first one encrypts, all decrypt. Empty: an older version.
type NodeKeys struct {
	Node   string   `json:"node"`
	Host   string   `json:"host"`
	KeyIDs []string `json:"keyIds" db:"key_ids"`
}

// KeyStatus is the state of a rotation. Nodes of role api do not report.
type KeyStatus struct {
	Keys  []KeyInUse `json:"keys"`
	Nodes []NodeKeys `json:"nodes"`
}

// ReadKeyStatus reads the keys, oldest first, and the nodes that have written a heartbeat in the last 15 s.
func ReadKeyStatus(ctx context.Context, pool *pgxpool.Pool) (status KeyStatus, err error) {
	const keys = `SELECT key_id, created_at, retired_at FROM postrider_internal.encryption_keys
		ORDER BY created_at, key_id`
	const nodes = `SELECT id AS node, host, key_ids FROM postrider_internal.nodes
		WHERE beat_at > clock_timestamp() - interval '15 seconds' ORDER BY id`
	if status.Keys, err = postgres.Rows[KeyInUse](ctx, pool, keys); err != nil {
		return KeyStatus{}, postgres.ReadError("the encryption keys", err)
	}
	if status.Nodes, err = postgres.Rows[NodeKeys](ctx, pool, nodes); err != nil {
		return KeyStatus{}, postgres.ReadError("the nodes' keys", err)
	}
	return status, nil
}

const (
	currentVariable  = "POSTRIDER_ENCRYPTION_KEY"
	previousVariable = "POSTRIDER_PREVIOUS_ENCRYPTION_KEYS"
)

// Next is the next step of a rotation, as numbered in docs/operate/configure.md.
func (s KeyStatus) Next() string {
	var inUse, retired []string
	for _, k := range s.Keys {
		if k.RetiredAt == nil {
			inUse = append(inUse, k.KeyID)
		} else {
			retired = append(retired, k.KeyID)
		}
	}
	switch {
	case len(inUse) == 0:
		return "No key is in use yet: start a node."
	case len(s.Nodes) == 0:
		return "No node that delivers is running: start one."
	case len(s.without(func(n NodeKeys) bool { return len(n.KeyIDs) > 0 })) > 0:
		return "Upgrade the nodes that do not report their keys."
	}
	newest := inUse[len(inUse)-1] // a key is stored when the first node encrypts with it
	others := s.without(func(n NodeKeys) bool { return n.KeyIDs[0] == newest })
	switch keys := fmt.Sprintf("%s as %s and the other key in %s.", newest, currentVariable, previousVariable); {
	case len(inUse) > 1 && len(others) > 0:
		return "Step 2: restart " + strings.Join(others, ", ") + " with " + keys
	case len(inUse) > 1:
		return "Step 3: run `postrider keys rotate` with " + keys
	case len(others) > 0:
		return fmt.Sprintf("Restart %s with %s as %s: other keys are retired.", strings.Join(others, ", "), newest,
			currentVariable)
	}
	return s.nextWithOneKey(newest, retired)
}

// nextWithOneKey is the next step while all nodes encrypt with the only key that is in use.
func (s KeyStatus) nextWithOneKey(key string, retired []string) string {
	added := "" // known to a node, but not used by any
	for _, n := range s.Nodes {
		for _, id := range n.KeyIDs[1:] {
			if !slices.Contains(retired, id) {
				added = id
			}
		}
	}
	missing := s.without(func(n NodeKeys) bool { return slices.Contains(n.KeyIDs, added) })
	late := s.without(func(n NodeKeys) bool { return len(n.KeyIDs) == 1 })
	switch {
	case added != "" && len(missing) > 0:
		return fmt.Sprintf("Step 1: restart %s with %s in %s.", strings.Join(missing, ", "), added, previousVariable)
	case added != "":
		return fmt.Sprintf("Step 2: restart each node with %s as %s and %s in %s.", added, currentVariable, key,
			previousVariable)
	case len(late) > 0:
		return fmt.Sprintf("Step 4: restart %s without %s. Then you can destroy the retired key.",
			strings.Join(late, ", "), previousVariable)
	}
	return fmt.Sprintf("No rotation is in progress. To start one, restart each node with a new key in %s (step 1).",
		previousVariable)
}

// without returns the names of the nodes that lack a property.
func (s KeyStatus) without(has func(NodeKeys) bool) (names []string) {
	for _, n := range s.Nodes {
		if !has(n) {
			names = append(names, n.Node)
		}
	}
	return names
}
