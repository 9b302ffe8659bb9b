package worker

// setNice does nothing where there are no nice values.
func setNice(int, int) {}
