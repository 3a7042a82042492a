package writeback

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// sqlite has two writers write to each of two databases, and verifies that all committed rows exist.
func sqlite(s *arena) {
	modes := []string{"wal", "delete"}
	var writers []*sqliteWriter
	for _, mode := range modes {
		writers = append(writers, s.startSQLite(mode)...)
	}
	k := s.shake()
	stop := s.takeTurns(s.a.Name, s.b.Name)
	var over atomic.Bool
	var all sync.WaitGroup
	for _, w := range writers {
		all.Go(func() { w.write(&over) })
	}
	s.enough(k)
	over.Store(true)
	all.Wait()
	stop()
	for _, w := range writers {
		w.ends()
		if w.err != nil {
			s.Errorf("%s in mode %s: %v", w.name, w.mode, w.err)
		}
	}
	s.moved(k)
	s.forget()
	for _, mode := range modes {
		s.checkSQLite(mode, slices.DeleteFunc(slices.Clone(writers), func(w *sqliteWriter) bool { return w.mode != mode }))
	}
}

// startSQLite makes a database with a journal of this mode, and starts its two writers.
func (s *arena) startSQLite(mode string) (writers []*sqliteWriter) {
	s.Helper()
	file := filepath.Join(s.dir, mode+".db")
	lab.Administer(s.T, "sqlite3", "-bail", file, "PRAGMA journal_mode="+mode+`;
			CREATE TABLE log(who TEXT, n INTEGER, data BLOB);
			CREATE TABLE page(id INTEGER PRIMARY KEY, data BLOB);
			INSERT INTO page WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i+1 FROM n WHERE i<100) SELECT i, randomblob(4000) FROM n;`)
	for name, w := range map[string]lab.Writer{"a": s.a, "b": s.b} {
		p := s.prepare("sqlite3", "-bail", "-cmd", ".timeout 60000", "-cmd", "PRAGMA cache_size=20", file)
		stdin, stdout := p.pipes()
		writers = append(writers, &sqliteWriter{process: p.startIn(w), mode: mode, name: name, stdin: stdin, answers: bufio.NewReader(stdout)})
	}
	return writers
}

// checkSQLite checks that a database has what its writers have committed.
func (s *arena) checkSQLite(mode string, writers []*sqliteWriter) {
	s.Helper()
	want := "ok\n"
	slices.SortFunc(writers, func(a, b *sqliteWriter) int { return strings.Compare(a.name, b.name) })
	for _, w := range writers {
		s.Logf("mode %s, %s: %d commits", mode, w.name, w.commits)
		if w.commits < fewCommits {
			s.Errorf("mode %s: writer %s made %d commits, want at least %d", mode, w.name, w.commits, fewCommits)
		}
		want += fmt.Sprintf("%s|%d|%d\n", w.name, w.commits, w.commits*(w.commits+1)/2)
	}
	out, err := exec.CommandContext(s.Context(), "sqlite3", "-bail", filepath.Join(s.dir, mode+".db"),
		"PRAGMA integrity_check; SELECT who, count(*), sum(n) FROM log WHERE length(data)=300 GROUP BY who ORDER BY who;").CombinedOutput()
	if err != nil || string(out) != want {
		s.Errorf("database in mode %s: error %v, integrity check and rows are %q, want %q", mode, err, out, want)
	}
}

const fewCommits = 5

type sqliteWriter struct {
	*process
	mode, name string
	stdin      io.WriteCloser
	answers    *bufio.Reader
	commits    int
	err        error
}

// write commits one transaction after another, at least a few. Without the pause the other writer
// would get no turn, because a writer that waits for a lock tries only from time to time.
func (w *sqliteWriter) write(over *atomic.Bool) {
	defer w.stdin.Close()
	for !over.Load() || w.commits < fewCommits {
		n := w.commits + 1
		if _, w.err = fmt.Fprintf(w.stdin, "BEGIN IMMEDIATE; INSERT INTO log VALUES('%s', %d, randomblob(300)); "+
			"UPDATE page SET data=randomblob(4000) WHERE id%%20=%d; COMMIT; SELECT %d;\n", w.name, n, rand.IntN(20), n); w.err != nil {
			return
		}
		var answer string
		if answer, w.err = w.answers.ReadString('\n'); w.err != nil {
			return
		}
		if answer != fmt.Sprintln(n) {
			w.err = fmt.Errorf("sqlite answered %q to commit %d", answer, n)
			return
		}
		w.commits = n
		time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond)
	}
}

// As pgbench's own, with fewer rows, which it takes a minute to make here.
const (
	tables = `CREATE TABLE accounts(id int, balance int NOT NULL, filler char(84));
		INSERT INTO accounts SELECT i, 0, '' FROM generate_series(1, 5000) i;
		ALTER TABLE accounts ADD PRIMARY KEY (id);
		CREATE TABLE tellers(id int PRIMARY KEY, balance int NOT NULL) WITH (fillfactor=10);
		INSERT INTO tellers SELECT i, 0 FROM generate_series(1, 100) i;
		CREATE TABLE history(teller int, account int, delta int, at timestamp, filler char(22));`
	transaction = `\set account random(1, 5000)
		\set teller random(1, 100)
		\set delta random(-5000, 5000)
		BEGIN;
		UPDATE accounts SET balance = balance + :delta WHERE id = :account;
		UPDATE tellers SET balance = balance + :delta WHERE id = :teller;
		INSERT INTO history VALUES (:teller, :account, :delta, now(), '');
		END;`
)

// database is a PostgreSQL of the test's own.
type database struct {
	s                 *arena
	bin, data, socket string
	credential        syscall.Credential
	server            *process
	recent            []string // see written
	looked            time.Time
}

// postgres has the processes of a server in two cgroups, kills the server, and verifies that it recovers all
// that was committed.
func postgres(s *arena) {
	d := newDatabase(s)
	d.start()
	d.does("psql", "-Xq", "-v", "ON_ERROR_STOP=1", "-c", tables, "postgres")
	script := filepath.Join(d.socket, "script")
	lab.WriteFile(s.T, script, transaction)
	k := shake(s.T, s.fs, s.dir, d.written, s.a.Name, s.b.Name)
	stop := s.takeTurns(s.a.Name, s.b.Name)
	stopParting := s.repeat(func(int) { d.part() })
	committed := 0
	s.rounds(k, func() {
		const each, clients = 20, 4
		out := d.does("pgbench", "-n", "-c", strconv.Itoa(clients), "-t", strconv.Itoa(each), "-f", script, "postgres")
		if !strings.Contains(out, fmt.Sprintf("actually processed: %d/%[1]d\n", each*clients)) {
			s.Errorf("pgbench did not process %d transactions: %s", each*clients, out)
		}
		committed += each * clients
	})
	s.Logf("%d transactions", committed)
	stopParting()
	stop()
	d.stop(unix.SIGQUIT)
	s.moved(k)
	s.forget()
	d.start()
	if log := d.server.out.String(); !strings.Contains(log, "redo done at") {
		s.Errorf("PostgreSQL did not replay its log after the crash, so the case shows less: %s", log)
	}
	const sums = "SELECT (SELECT sum(balance) FROM accounts) = sum(delta), (SELECT sum(balance) FROM tellers) = sum(delta), count(*) FROM history"
	if got, want := d.does("psql", "-AtX", "-c", sums, "postgres"), fmt.Sprintf("t|t|%d\n", committed); got != want {
		s.Errorf("sums of the database after recovery are %q, want %q", got, want)
	}
	d.stop(unix.SIGINT)
	s.forget()
	sums2 := d.does("pg_checksums", "--check", "-D", d.data)
	if !strings.Contains(sums2, "Bad checksums:  0\n") {
		s.Errorf("pg_checksums found bad checksums: %s", sums2)
	}
}

func newDatabase(s *arena) *database {
	s.Helper()
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil || len(found) != 1 {
		s.Fatalf("installations of PostgreSQL: %v, %v, want one", found, err)
	}
	account, err := user.Lookup("postgres")
	if err != nil {
		s.Fatal(err)
	}
	uid, err1 := strconv.Atoi(account.Uid)
	gid, err2 := strconv.Atoi(account.Gid)
	d := &database{
		s: s, bin: found[0], data: filepath.Join(s.dir, "data"), socket: s.TempDir(),
		credential: syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)},
	}
	if err := errors.Join(err1, err2, os.Chmod(s.dir, 0o755), os.Chown(d.socket, uid, gid)); err != nil {
		s.Fatal(err)
	}
	for dir := d.socket; dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			s.Fatal(err)
		}
	}
	lab.Administer(s.T, "cp", "-a", "/var/lib/postgresql/data", d.data) // see customize.sh in test/node
	return d
}

func (d *database) prepare(command ...string) *process {
	d.s.Helper()
	p := d.s.prepare(append([]string{filepath.Join(d.bin, command[0])}, command[1:]...)...)
	p.SysProcAttr.Credential = &d.credential
	p.Env, p.Dir = append(os.Environ(), "PGHOST="+d.socket), "/"
	return p
}

func (d *database) does(command ...string) string {
	d.s.Helper()
	p := d.prepare(command...)
	if err := p.Start(); err != nil {
		d.s.Fatal(err)
	}
	return p.ends()
}

// start starts the server with so few buffers that a process which needs one writes out a page of
// another process.
func (d *database) start() {
	d.s.Helper()
	args := []string{"postgres", "-D", d.data}
	for _, set := range []string{
		"listen_addresses=", "unix_socket_directories=" + d.socket, "jit=off", "shared_buffers=1MB", "max_wal_size=8MB",
		"checkpoint_completion_target=0.1", "bgwriter_delay=10ms", "autovacuum_naptime=1s", "log_checkpoints=on",
	} {
		args = append(args, "-c", set)
	}
	d.server = d.prepare(args...).startIn(d.s.a)
	lab.Eventually(d.s.T, "the database is ready", func() error {
		return d.prepare("pg_isready", "-q").Run()
	})
}

// part takes the server's processes of odd numbers to the second cgroup, so that
// each has a half of what is started one after another.
func (d *database) part() {
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", d.server.Process.Pid))
	if err != nil {
		d.s.Error(err)
	}
	for pid := range strings.FieldsSeq(string(children)) {
		if !strings.ContainsAny(pid[len(pid)-1:], "13579") {
			continue
		}
		err := os.WriteFile(filepath.Join(cgroup.Root, d.s.b.Name, "cgroup.procs"), []byte(pid), 0)
		if err != nil && !errors.Is(err, unix.ESRCH) { // it has ended
			d.s.Error(err)
		}
	}
}

func (d *database) stop(how unix.Signal) {
	d.s.Helper()
	if err := d.server.Process.Signal(how); err != nil {
		d.s.Fatal(err)
	}
	err := d.server.Wait()
	if exit := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &exit) || !exit.Exited()) {
		d.s.Fatalf("%v: %s", err, d.server.out.String())
	}
}

// written returns the files, of a thousand, that were written to recently. They are read again only once a
// second, because reading the times of all files takes longer than moving these.
func (d *database) written() []string {
	if time.Since(d.looked) > time.Second {
		d.recent, d.looked = nil, time.Now()
		for _, file := range d.s.files() {
			if info, err := os.Stat(file); err == nil && time.Since(info.ModTime()) < 5*time.Second {
				d.recent = append(d.recent, file)
			}
		}
	}
	return d.recent
}
