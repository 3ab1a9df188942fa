package lesson

import "testing"

func TestClaimsAreFoundByTheirIds(t *testing.T) {
	const ledger = "| id | claim | test | false in a world where | upstream |\n" +
		"| CF2 | a \\| b | TestTwo | it is not | `x` |\n" +
		"| CF2b | c | TestTwoB | it is not | `x` |\n" +
		"| GU1 | d | TestOne | it is not | `x` |\n"
	for pattern, want := range map[string]string{
		"CF2":     "^(TestTwo)$",
		"CF2b":    "^(TestTwoB)$",
		"CF":      "^(TestTwo|TestTwoB)$",
		"GU|CF2b": "^(TestOne|TestTwoB)$",
		"CF9":     "",
		"CF2|UI":  "",
	} {
		got, ok := testsOf(pattern, ledger)
		if got != want || ok != (want != "") {
			t.Errorf("%s: the tests are %q (%t), want %q", pattern, got, ok, want)
		}
	}
	for pattern, want := range map[string]bool{
		"CF": true, "CF2": true, "CF2|GU1": true, "cf2": false, "Test": false, "CF2.*": false, "UID": false, "": false,
	} {
		if got := ids.MatchString(pattern); got != want {
			t.Errorf("%q: may be ids: %t, want %t", pattern, got, want)
		}
	}
}
