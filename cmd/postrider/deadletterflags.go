package main

import (
	"postrider/cmd/postrider/terminal"
	"postrider/policy"
)

// deadLetterFlags say where dead letters may be written to outside of the database. Nobody who may change an event
// subscription can have a node write elsewhere, or show its cloud credentials to a server of his own. The nodes of one
// database should agree.
type deadLetterFlags struct {
	DeadLetterLocation  []string `help:"Locations that event subscriptions may have their dead letters written to, or to something within: file:///directory, s3://bucket?region=…, azblob://container." env:"POSTRIDER_DEAD_LETTER_LOCATION" placeholder:"URL"`
	DeadLetterContainer []string `help:"What Event Grid's storage containers (StorageBlob) mean here: ACCOUNT/CONTAINER=URL, the account's name or its resource id." env:"POSTRIDER_DEAD_LETTER_CONTAINER" placeholder:"CONTAINER=URL"`
}

func (f deadLetterFlags) locations() (found policy.ExportLocations, err error) {
	for _, raw := range f.DeadLetterLocation {
		location, err := policy.ParseLocation(raw)
		if err != nil {
			return found, terminal.Usagef("--dead-letter-location %q: %v", raw, err)
		}
		found.Allowed = append(found.Allowed, location)
	}
	for _, raw := range f.DeadLetterContainer {
		if err := found.AddContainer(raw); err != nil {
			return found, terminal.Usagef("--dead-letter-container %q: %v", raw, err)
		}
	}
	return found, nil
}
