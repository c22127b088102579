package sqlite_test

func writeUntilKilled() {}
func writeUnderLimit() {}
