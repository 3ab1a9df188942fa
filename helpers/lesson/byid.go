package lesson

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"
)

// LedgerFile is the path of the ledger of claims, in the folder of the book.
const LedgerFile = "CLAIMS.md"

// ids are what -run may name instead of tests: ids of claims, such as "CF2|GU1", or of all claims of a family,
// such as "CF".
var ids = regexp.MustCompile(`^[A-Z]{2}([0-9]+[a-z]?)?(\|[A-Z]{2}([0-9]+[a-z]?)?)*$`)

// byID makes -run=CF2 run the lesson of the claim CF2. Pages, errata and the ledger name claims by their ids, and
// go test knows the names of tests only.
func byID() error {
	f := flag.Lookup("test.run")
	// Around an id, the signs of a whole word say nothing new.
	named := strings.NewReplacer("^", "", "$", "", "(", "", ")", "").Replace(f.Value.String())
	if !ids.MatchString(named) {
		return nil
	}
	ledger, err := os.ReadFile(LedgerFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking up which lessons are %s: %w", f.Value, err)
	}
	if pattern, ok := testsOf(named, string(ledger)); ok {
		return f.Value.Set(pattern)
	}
	return nil
}

// testsOf returns a pattern for the tests that prove the claims with the given ids, by the rows of the ledger. It
// reports false when the ledger has no row for one of them: the pattern may be meant for a test's name.
func testsOf(pattern, ledger string) (string, bool) {
	var tests []string
	for _, id := range strings.Split(pattern, "|") {
		if len(id) == 2 {
			id += `[0-9]+[a-z]?`
		}
		rows := regexp.MustCompile(`(?m)^\| `+id+` \| .* \| (Test\w+) \| `).FindAllStringSubmatch(ledger, -1)
		if len(rows) == 0 {
			return "", false
		}
		for _, row := range rows {
			tests = append(tests, row[1])
		}
	}
	return "^(" + strings.Join(tests, "|") + ")$", true
}
