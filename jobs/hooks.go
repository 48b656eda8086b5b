package jobs

// SweepStatements are the statements of the sweeper that read all rows in steps, for tests of their plans.
func SweepStatements() map[string]string {
	statements := map[string]string{}
	for _, r := range repairs(&Swept{}) {
		if r.byID {
			statements[r.name] = r.statement
		}
	}
	return statements
}
