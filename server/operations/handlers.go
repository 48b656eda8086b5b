package operations

import (
	"postrider/server/api"
	v1 "postrider/server/v1"
)

// Handlers respond to the requests about what was published, delivered and recorded.
type Handlers struct{ Parts v1.Parts }

// problems are the mistakes in one request, with checks of the operations.
type problems struct{ api.Problems }
