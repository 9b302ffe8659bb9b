package seal

// ReportDocument is a report as JSON.
type ReportDocument struct {
	Verdict     string              `json:"verdict"` // "valid", "unexplained" or "invalid"
	Trusted     bool                `json:"trusted"` // a key that was given has signed the newest checkpoint
	Checkpoint  *CheckpointDocument `json:"checkpoint"`
	Signatures  []Signature         `json:"signatures,omitempty"`
	Checkpoints int                 `json:"checkpoints"`
	Present     int64               `json:"present"`
	Gone        int64               `json:"gone"`
	Unsealed    int64               `json:"unsealed"`
	Open        int64               `json:"open"`
	Removals    []Removal           `json:"removals,omitempty"`
	Unexplained []ProblemDocument   `json:"unexplained,omitempty"`
	Problems    []ProblemDocument   `json:"problems,omitempty"`
}

// ProblemDocument is a problem as JSON.
type ProblemDocument struct {
	RunID string `json:"run_id,omitempty"`
	Leaf  *int64 `json:"leaf,omitempty"`
	Error string `json:"error"`
}

// Document returns the report as a document.
func (r Report) Document() ReportDocument {
	return ReportDocument{
		Verdict: r.Verdict(), Trusted: len(r.Signatures) > 0, Checkpoint: r.Newest.Document(), Signatures: r.Signatures,
		Checkpoints: r.Checkpoints, Present: r.Present, Gone: r.Gone, Unsealed: r.Unsealed, Open: r.Open,
		Removals: r.Removals, Unexplained: problemDocuments(r.Unexplained), Problems: problemDocuments(r.Problems),
	}
}

// Verdict returns "valid", "unexplained" or "invalid".
func (r Report) Verdict() string {
	switch {
	case len(r.Problems) > 0:
		return "invalid"
	case len(r.Unexplained) > 0:
		return "unexplained"
	}
	return "valid"
}

func problemDocuments(all []Problem) (docs []ProblemDocument) {
	for _, p := range all {
		d := ProblemDocument{RunID: p.RunID, Error: p.Text}
		if p.Leaf >= 0 {
			d.Leaf = &p.Leaf
		}
		docs = append(docs, d)
	}
	return docs
}
