// Package record is what a run of the book found, as plain values: it imports nothing of the book, and everything
// that people see is made from it.
package record

import (
	"regexp"
	"slices"
	"strings"
)

// Book is the chapters in reading order, with the lessons of each.
type Book []Chapter

// Chapter is one chapter of the book.
type Chapter struct {
	Title string `json:"title"`
	Intro string `json:"intro,omitempty"` // a few sentences on what the chapter is about
	Parts []Part `json:"parts"`
}

// Part is a part of a chapter.
type Part struct {
	Title   string `json:"title"`
	Lessons string `json:"lessons"` // the ids of its claims in reading order, with spaces between them: "RV1 RV2"
}

// IDs are the ids of all claims of the book, in reading order.
func (b Book) IDs() []string {
	var out []string
	for _, c := range b {
		for _, p := range c.Parts {
			out = append(out, strings.Fields(p.Lessons)...)
		}
	}
	return out
}

// Place is where in the book the lesson of a claim stands: the number of its chapter and of its part, both counted
// from 1, and how many lessons come before it. A claim that is not in the book has chapter 0, and stands behind
// all that are.
func (b Book) Place(id string) (chapter, part, before int) {
	for c := range b {
		for p := range b[c].Parts {
			ids := strings.Fields(b[c].Parts[p].Lessons)
			if i := slices.Index(ids, id); i >= 0 {
				return c + 1, p + 1, before + i
			}
			before += len(ids)
		}
	}
	return 0, 0, before
}

var testName = regexp.MustCompile(`^Test([A-Z]{2}[0-9]+[a-z]?)_[A-Z]`)

// IDOf is the id of the claim that a test proves, by its name: "CF3" for TestCF3_ARacedReplaceIsRefused. It is ""
// for a test that names no claim.
func IDOf(test string) string {
	m := testName.FindStringSubmatch(test)
	if m == nil {
		return ""
	}
	return m[1]
}
