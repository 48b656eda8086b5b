package management

import "postrider/server/api"

// problems are the mistakes found in one request, with checks of what the management operations take.
type problems struct{ api.Problems }
