package ledger

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

const book = `# about it
reason full "make nightly runs it"
reason race "run it without -race"
finds "more rounds"
finds a TestLong "long things"
finds b/c Test.* "a part"
finds full .* "the rest"

a
  TestLong nightly
  TestShort
b/c
  TestIt skips race full
full nightly
  TestAll
`

func parsed(t *testing.T, text string) *Ledger {
	t.Helper()
	l, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// tree writes files and returns the packages that have tests.
func tree(t *testing.T, files map[string]string) []Package {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found, err := Packages(root)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestTheTestsOfAllModulesAreRead(t *testing.T) {
	got := tree(t, map[string]string{
		"go.mod":                   "module m\n",
		"a/a_test.go":              "package a\nfunc TestB(t *testing.T) {}\nfunc TestMain(m *testing.M) {}\nfunc Testing(t *testing.T) {}\nfunc (x) TestOfAType(t *testing.T) {}\nfunc BenchmarkA(b *testing.B) {}\n",
		"a/more_test.go":           "package a_test\nfunc FuzzA(f *testing.F) {}\nfunc Test(t *testing.T) {}\nfunc ExampleOf() {\n// Output: x\n}\nfunc Example_built() {}\n",
		"a/one_linux_test.go":      "package a\nfunc TestOnEach(t *testing.T) {}\n",
		"a/one_windows_test.go":    "package a\nfunc TestOnEach(t *testing.T) {}\nfunc TestElsewhere(t *testing.T) {}\n",
		"a/plain_test.go":          "//go:build !race\n\npackage a\nfunc TestPlain(t *testing.T) {}\n",
		"a/never_test.go":          "//go:build never\n\npackage a\nfunc TestNever(t *testing.T) {}\n",
		"a/testdata/b_test.go":     "package b\nfunc TestOfData(t *testing.T) {}\n",
		"a/_left/b_test.go":        "package b\nfunc TestLeft(t *testing.T) {}\n",
		"nested/go.mod":            "module m/nested\n",
		"nested/below/n_test.go":   "package n\nfunc TestN(t *testing.T) {}\n",
		"nested/below/n.go":        "package n\nfunc TestOfNoTestFile(t *testing.T) {}\n",
		"none/none_test.go":        "package none\n",
		"x/node_modules/x_test.go": "package x\nfunc TestX(t *testing.T) {}\n",
	})
	want := []Package{
		{
			Folder: "a", Module: ".", Tests: []string{"ExampleOf", "FuzzA", "Test", "TestB", "TestElsewhere", "TestOnEach", "TestPlain"},
			Plain: []string{"TestPlain"}, Elsewhere: []string{"TestElsewhere"},
		},
		{Folder: "nested/below", Module: "nested", Tests: []string{"TestN"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v; want %+v", got, want)
	}
}

// everything is a run of the tests that follow.
func everything(tests ...Tests) map[Run][]Part {
	return map[Run][]Part{Landing: {{Name: "all", Tests: tests}}}
}

func TestAnythingThatTheLedgerAndTheTreeDoNotShareIsWrong(t *testing.T) {
	pkg := func(folder, module string, tests ...string) Package {
		return Package{Folder: folder, Module: module, Tests: tests}
	}
	two, one, all := pkg("a", ".", "TestLong", "TestShort"), pkg("b/c", "b", "TestIt"), pkg("full", ".", "TestAll")
	plain := two
	plain.Plain = []string{"TestShort"}
	runs := everything(Tests{Flags: "-race"}, Tests{Module: "b"})
	for says, c := range map[string]struct {
		packages []Package
		runs     map[Run][]Part
		wrong    string // one line of what is wrong; empty: nothing is
	}{
		"all is well":                  {[]Package{two, one, all}, runs, ""},
		"a package is new":             {[]Package{two, one, all, pkg("new", ".", "TestNew")}, runs, "has no test new.TestNew"},
		"a package is gone":            {[]Package{two, all}, runs, "has the package b/c, which has no tests"},
		"a test is new":                {[]Package{pkg("a", ".", "TestLong", "TestNew", "TestShort"), one, all}, runs, "has no test a.TestNew"},
		"a test is lost":               {[]Package{pkg("a", ".", "TestLong"), one, all}, runs, "has the test a.TestShort, which does not exist"},
		"a test has another name":      {[]Package{pkg("a", ".", "TestOther", "TestShort"), one, all}, runs, "the test a.TestLong, which does not exist"},
		"a module is not run":          {[]Package{two, one, all}, everything(Tests{}), "no part of the run landing has b/c.TestIt"},
		"a package is left out":        {[]Package{two, one, all}, everything(Tests{Except: "a"}, Tests{Module: "b"}), "no part of the run landing has a.TestShort"},
		"a test is skipped":            {[]Package{two, one, all}, everything(Tests{Skip: "Short$"}, Tests{Module: "b"}), "no part of the run landing has a.TestShort"},
		"parts of a test are skipped":  {[]Package{two, one, all}, everything(Tests{Skip: "Short$/small"}, Tests{Module: "b"}), ""},
		"a test is not selected":       {[]Package{two, one, all}, everything(Tests{Run: "(Lo|X)ng/a|Shart"}, Tests{Module: "b"}), "no part of the run landing has a.TestShort"},
		"landing leaves one out":       {[]Package{two, one, all}, everything(Tests{Skip: "Long"}, Tests{Module: "b"}), ""},
		"nightly leaves one out":       {[]Package{two, one, all}, map[Run][]Part{Nightly: {{Tests: []Tests{{Skip: "Long"}, {Module: "b"}}}}}, "no part of the run nightly has a.TestLong"},
		"landing has no package":       {[]Package{two, one, all}, everything(Tests{Except: "full"}, Tests{Module: "b"}), ""},
		"nightly has no package":       {[]Package{two, one, all}, map[Run][]Part{Nightly: {{Tests: []Tests{{Except: "full"}, {Module: "b"}}}}}, "no part of the run nightly has full.TestAll"},
		"tests share their parts":      {[]Package{two, one, all}, everything(Tests{Run: "Sh(o|a)rt/a"}, Tests{Run: "Nothing|Long"}, Tests{Module: "b"}), ""},
		"never with the race detector": {[]Package{plain, one, all}, everything(Tests{Flags: "-race"}, Tests{Module: "b"}), "no part of the run landing has a.TestShort"},
		"only with the race detector":  {[]Package{two, one, all}, everything(Tests{}, Tests{Module: "b", Flags: "-race"}), "b/c.TestIt skips under the race detector"},
	} {
		wrong := parsed(t, book).Check(c.packages, c.runs)
		if all := strings.Join(wrong, "\n"); c.wrong == "" && len(wrong) > 0 || c.wrong != "" && !strings.Contains(all, c.wrong) {
			t.Errorf("%s: %q; want %q", says, all, c.wrong)
		}
	}
}

func TestTheLedgerIsUpdated(t *testing.T) {
	got, err := Updated(book, []Package{{Folder: "a", Tests: []string{"TestLong", "TestNew"}}, {Folder: "full", Tests: []string{"TestAll"}}, {Folder: "new", Tests: []string{"TestNew"}}})
	if err != nil {
		t.Fatal(err)
	}
	head, _, _ := strings.Cut(book, "a\n")
	if want := head + "a\n  TestLong nightly\n  TestNew\nfull nightly\n  TestAll\nnew\n  TestNew\n"; got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// What only nightly finds has a line, and each line has a test.
func TestWhatOnlyNightlyFindsIsListed(t *testing.T) {
	for says, c := range map[string]struct{ line, instead, wrong string }{
		"a test of nightly":             {"finds a TestLong", "finds a TestShort", "does not say what only nightly finds by a.TestLong"},
		"a test of which a part skips":  {`finds b/c Test.* "a part"`, "", "does not say what only nightly finds by b/c.TestIt"},
		"a package of nightly":          {"finds full .*", "finds b/c .*", "does not say what only nightly finds by full.TestAll"},
		"a line about tests of landing": {`finds "more rounds"`, `finds a Test(Short) "short things"`, `only nightly finds "short things", by no test of a`},
		"a line about no package":       {`finds "more rounds"`, `finds b Test.* "nothing"`, `only nightly finds "nothing", by no test of b`},
	} {
		wrong := strings.Join(parsed(t, strings.Replace(book, c.line, c.instead, 1)).Check(nil, nil), "\n")
		if !strings.Contains(wrong, c.wrong) {
			t.Errorf("%s: %q; want %q", says, wrong, c.wrong)
		}
	}
	if wrong := strings.Join(parsed(t, book).Check(nil, nil), "\n"); strings.Contains(wrong, "only nightly") {
		t.Errorf("%q; want nothing wrong in the list", wrong)
	}
}

func TestALineThatIsNoneIsNamed(t *testing.T) {
	for _, line := range []string{"a", "a two", "  TestAll", "  TestOther sometimes", "  TestOther skips nothing", " TestOther", `finds a Test( "x"`} {
		if _, err := Parse(book + line + "\n"); err == nil || !strings.Contains(err.Error(), File+":16: ") {
			t.Errorf("%q: %v", line, err)
		}
	}
}

// The command of a part has what its tests select.
func TestTheCommandOfAPart(t *testing.T) {
	packages := []Package{{Folder: ".", Module: "."}, {Folder: "a", Module: "."}, {Folder: "a/b", Module: "."}, {Folder: "c", Module: "."}, {Folder: "m/d", Module: "m"}}
	for want, c := range map[string]Tests{
		"-race ./...":              {Flags: "-race"},
		"-C m -run X ./...":        {Module: "m", Run: "X"},
		"-skip X ./a -schedules 7": {Packages: "./a", Skip: "X", Args: "-schedules 7"},
		"./. ./a ./a/b":            {Except: "c"},
		"./. ./c":                  {Except: "a/..."},
		"-C m -timeout 1h ./...":   {Module: "m", Flags: "-timeout 1h "},
	} {
		if got := strings.Join(c.Command(packages), " "); got != want {
			t.Errorf("%s; want %s", got, want)
		}
	}
	if has := (Tests{Packages: "./a/..."}); !has.has(packages[1]) || !has.has(packages[2]) || has.has(packages[3]) || has.has(packages[4]) {
		t.Error("./a/... is not a and a/b")
	}
	if has := (Tests{Module: "m", Packages: "./d"}); !has.has(packages[4]) || has.has(packages[1]) {
		t.Error("./d of m is not m/d")
	}
}
