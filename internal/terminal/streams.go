package terminal

import "io"

// Streams are the standard streams of a verb. The entry point passes them to Run, so that tests run verbs in process.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}
