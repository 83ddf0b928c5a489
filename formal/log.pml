/*
 * One row of an array of two data members and one parity member, with the stripe intent log: crashes, torn writes, lost
 * and returning members, starts that are cut off. What is modelled and what is not: README.md. The rules are those of
 * docs/on-disk-format.md (Stripe intent log, Assembly).
 *
 * What must stay true: engine() asks only what an engine can know (what is on devices that are there, and its own
 * memory, which a crash takes); the judge's variables, below, are read in assertions only. Each rule that can be
 * taken away is taken away in one place, and check-formal demands a counterexample for each.
 */

/* The rules that can be taken away. Which one, and the bounds, say environment variables: one program does for all. */
#define TAKE_OUT_RECORDED 1     /* a member that failed is recorded as out before an update goes in place */
#define GENERATION_RAISED 2     /* ... under a generation of its own */
#define LOSS_BEFORE_PLACE 3     /* ... and between the rounds, not after them */
#define OUT_NOT_BELIEVED 4      /* a member that the newest superblock calls out is not read */
#define CAUGHT_UP 5             /* a start brings all members to one generation before it makes a new one */
#define HOME_HOLDS 6            /* the members that store data hold records, too, not only those of parity */
#define RECORD_FORCED 7         /* records are durable before anything is written in place */
#define ANSWER_AFTER_RECORD 8   /* the client is answered when its update is in place, not when it is planned */
#define FLUSH_BEFORE_REUSE 9    /* log space is used again only after what it was for is durable in place */
#define COMPLETE_ONLY 10        /* only what every holder in service has is rolled forward */
#define LOSS_BEFORE_REPLAY 11   /* who is not there is recorded before anything is rolled forward */
#define FLUSH_AFTER_REPLAY 12   /* what was rolled forward is durable before the log's validity ends */
#define NEW_INCARNATION 13      /* each start ends the validity of all records before it */
#define FILLED_DURABLY 14       /* a member that comes back counts only after what it was filled with is durable */
#define WITHOUT(rule) (removed == (rule))

byte removed;                   /* REMOVED: the number of a rule, or 0 */
byte updates, crashes, losses, returns; /* UPDATES (at most 3), CRASHES, LOSSES, RETURNS: how many are left */
c_decl { \#include <stdlib.h> }

#define UPDATES_MAX 3           /* a version has two bits */
#define MEMBERS 3               /* 0 and 1 store data, 2 stores parity: their XOR */
#define SLOTS 3                 /* batches in a member's ring, of one record each */
#define ALL 7

#define BIT(i) (1 << (i))
#define HAS(mask, i) (((mask) >> (i)) & 1)
#define COUNT(mask) (HAS(mask, 0) + HAS(mask, 1) + HAS(mask, 2))

/* Content of a block: version of data 0 in bits 0-1, of data 1 in bits 2-3, so that parity shows which versions it was
   computed of. A block that was written in part has a bit of its member's: no XOR of others hides it. */
#define CONTENT(i, version) ((version) << (2 * (i)))
#define VERSION(i, content) (((content) >> (2 * (i))) & 3)
#define TORN(i) (16 << (i))

/* A tag of two bits for each member, packed. 0: not a holder. */
#define TAG(tags, i) (((tags) >> (2 * (i))) & 3)

/* ---- what the members hold, and lose or keep in a crash ---- */

byte here = ALL;                /* members that can be reached */
byte block[MEMBERS];            /* in place, durable */
byte cached[MEMBERS];           /* in place, newest; as durable unless dirty */
byte dirty;                     /* members whose cache has a block that is not durable */

typedef Superblock { byte generation; byte incarnation; byte out; byte tags };
Superblock sb[MEMBERS];         /* durable, whole: it has two pairs of copies */
Superblock sb_next;             /* what is being written to the members in sb_flying */
byte sb_flying;

typedef Batch { byte incarnation; byte tag; byte sequence; byte holders; byte settled; byte content };
Batch ring[9];                  /* MEMBERS * SLOTS; incarnation 0: empty, or written in part */
byte log_flying;                /* members that have a batch under way, to their slot `head` */

/* ---- the engine's memory ---- */

Superblock now;                 /* the superblock in force */
byte sequence;                  /* of the newest update of this life */
byte settled;                   /* every update below is durable in place */
byte head[MEMBERS];             /* slot of the next batch */
byte b_sequence, b_holders;     /* the batch that is being written */
byte planned[MEMBERS];          /* what each holder is to store */
byte writing;                   /* members that are written in place by this update or this start */

/* ---- the judge: what a client may find ---- */

byte oldest[2], newest[2];      /* versions that each block may have */
byte answered[2];               /* newest version that was acknowledged */
byte perhaps_out;               /* members that some superblock may call out, and that were not filled since */

byte i, s, t, n, who, gone, lacking, has, stored, above;     /* scratch, 0 when it is not in use */

/* In service and reachable. */
#define SERVES (here & ~now.out)
/* Slot s of member i has a batch of this incarnation that was written under the member's present tag. */
#define COUNTS(i, s) (ring[(i) * SLOTS + (s)].incarnation == now.incarnation && ring[(i) * SLOTS + (s)].tag == TAG(now.tags, i))
#define R(i, s) ring[(i) * SLOTS + (s)]

/* ---- members: what becomes of writes under way when power or the member goes ---- */

inline write_batch(m) {
    d_step {
        R(m, head[m]).incarnation = now.incarnation;
        R(m, head[m]).tag = TAG(now.tags, m);
        R(m, head[m]).sequence = b_sequence;
        R(m, head[m]).holders = b_holders;
        R(m, head[m]).settled = settled;
        R(m, head[m]).content = (b_sequence > 0 -> planned[m] : 0);
    }
}

inline clear_batch(m) {
    d_step {
        R(m, head[m]).incarnation = 0; R(m, head[m]).tag = 0; R(m, head[m]).sequence = 0;
        R(m, head[m]).holders = 0; R(m, head[m]).settled = 0; R(m, head[m]).content = 0;
    }
}

/* Each write under way landed, did not, or (but for superblocks) landed in part. */
inline land(m) {
    if
    :: HAS(log_flying, m) -> log_flying = log_flying & ~BIT(m);
        if :: write_batch(m) :: clear_batch(m) :: skip fi
    :: else
    fi;
    if
    :: HAS(dirty, m) -> dirty = dirty & ~BIT(m);
        if
        :: block[m] = cached[m]
        :: skip
        :: cached[m] != block[m] -> block[m] = TORN(m)
        fi;
        cached[m] = block[m]
    :: else
    fi;
    if
    :: HAS(sb_flying, m) -> sb_flying = sb_flying & ~BIT(m);
        if :: copy_superblock(m) :: skip fi
    :: else
    fi
}

inline copy_superblock(m) {
    d_step {
        sb[m].generation = sb_next.generation; sb[m].incarnation = sb_next.incarnation;
        sb[m].out = sb_next.out; sb[m].tags = sb_next.tags;
    }
}

inline lose_one() {
    if :: gone = 0 :: gone = 1 :: gone = 2 fi;
    losses--; land(gone); here = here & ~BIT(gone); writing = writing & ~BIT(gone); gone = 0
}

/* A point at which power may fail, or a member while all the others serve. */
#define ANYTHING_MAY_HAPPEN \
    if \
    :: crashes > 0 -> crashes--; goto crash \
    :: losses > 0 && SERVES == ALL -> lose_one() \
    :: skip \
    fi

/* Makes durable what the members in `mask` have in their caches. */
inline flush(mask) {
    d_step {
        n = 0;
        do
        :: n < MEMBERS ->
            if :: HAS((mask) & dirty, n) -> block[n] = cached[n] :: else fi;
            n++
        :: else -> break
        od;
        dirty = dirty & ~(mask); n = 0
    }
}

/* The batches under way are durable. */
inline complete_records() {
    atomic {
        do
        :: i < MEMBERS -> if :: HAS(log_flying, i) -> write_batch(i); head[i] = (head[i] + 1) % SLOTS :: else fi; i++
        :: else -> i = 0; break
        od;
        log_flying = 0
    }
}

/* A block goes to the member's cache; what was there may have become durable before. */
inline write_in_place(m) {
    if
    :: HAS(dirty, m) -> block[m] = cached[m]
    :: skip
    fi;
    cached[m] = planned[m]; dirty = dirty | BIT(m)
}

/* ---- superblocks ---- */

/* Writes sb_next to the members that it lists as in service and that are here; they all have it afterwards. */
inline record_superblock() {
    sb_flying = here & ~sb_next.out;
    perhaps_out = perhaps_out | sb_next.out;
    ANYTHING_MAY_HAPPEN;
    finish_superblock()
}

inline finish_superblock() {
    atomic {
        do
        :: i < MEMBERS -> if :: HAS(sb_flying, i) -> copy_superblock(i) :: else fi; i++
        :: else -> i = 0; break
        od;
        sb_flying = 0;
        now.generation = sb_next.generation; now.incarnation = sb_next.incarnation;
        now.out = sb_next.out; now.tags = sb_next.tags;
        sb_next.generation = 0; sb_next.incarnation = 0; sb_next.out = 0; sb_next.tags = 0
    }
}

inline begin_superblock() {
    sb_next.generation = now.generation + 1; sb_next.incarnation = now.incarnation;
    sb_next.out = now.out; sb_next.tags = now.tags
}

/* The same while the array starts: only power may fail. */
inline record_in_start() {
    sb_flying = here & ~sb_next.out;
    perhaps_out = perhaps_out | sb_next.out;
    if :: crashes > 0 -> crashes--; goto crash :: skip fi;
    finish_superblock()
}

/* Members that failed are out, durably, before anything goes on. */
inline record_losses() {
    do
    :: (ALL & ~here & ~now.out) != 0 ->
        if
        :: WITHOUT(TAKE_OUT_RECORDED) -> now.out = now.out | (ALL & ~here)
        :: else ->
            begin_superblock(); sb_next.out = now.out | (ALL & ~here);
            if :: WITHOUT(GENERATION_RAISED) -> sb_next.generation-- :: else fi;
            record_superblock()
        fi
    :: else -> break
    od;
    skip
}

/* ---- reading ---- */

#define VIEW(m) cached[m]
/* Data block d, from its member or from the two others. */
#define READ(d) (HAS(SERVES, d) -> VIEW(d) : (VIEW(1 - (d)) ^ VIEW(2)))

/* ---- the log's space ---- */

/* What member m's own batches other than the one in slot s say is settled. */
inline said_by_others(m, slot) {
    d_step {
        above = 0; s = 0;
        do
        :: s < SLOTS ->
            if :: s != slot && COUNTS(m, s) && R(m, s).settled > above -> above = R(m, s).settled :: else fi;
            s++
        :: else -> break
        od;
        s = 0
    }
}

/* Makes room on member m for a record and for a batch after it that only says what is settled. */
inline make_room(m) {
    do
    :: true ->
        said_by_others(m, head[m]);
        lacking = (COUNTS(m, head[m]) && R(m, head[m]).sequence >= above -> 1 : 0);
        said_by_others(m, (head[m] + 1) % SLOTS);
        lacking = lacking + (COUNTS(m, (head[m] + 1) % SLOTS) && R(m, (head[m] + 1) % SLOTS).sequence >= above -> 2 : 0);
        above = 0;
        if
        :: lacking == 0 -> break
        :: else ->
            lacking = 0;
            if :: WITHOUT(FLUSH_BEFORE_REUSE) :: else -> flush(here) fi;
            settled = sequence + 1;
            b_sequence = 0; b_holders = 0;
            log_flying = BIT(m);
            ANYTHING_MAY_HAPPEN;
            if :: log_flying == 0 -> break /* it is gone */ :: else fi;
            complete_records()
        fi
    od;
    lacking = 0
}

/* ---- what a start makes of the logs ---- */

/* Which members of SERVES have the record of update n (`has`), and which lack it though it names them (`lacking`). */
inline look_for(n) {
    i = 0; has = 0; lacking = 0; t = 0;
    do
    :: i < MEMBERS ->
        s = 0;
        do
        :: s < SLOTS ->
            if
            :: HAS(SERVES, i) && COUNTS(i, s) && R(i, s).sequence == n -> has = has | BIT(i); t = R(i, s).holders
            :: else
            fi;
            s++
        :: else -> break
        od;
        i++
    :: else -> break
    od;
    i = 0; s = 0;
    do
    :: i < MEMBERS ->
        if
        :: HAS(SERVES, i) && !HAS(has, i) && TAG(t, i) != 0 && TAG(t, i) == TAG(now.tags, i) -> lacking = lacking | BIT(i)
        :: else
        fi;
        i++
    :: else -> break
    od;
    i = 0; t = 0
}

/* What a member has to store of update n, unless a later update has told. */
inline roll_forward(n) {
    do
    :: i < MEMBERS ->
        s = 0;
        do
        :: s < SLOTS ->
            if
            :: HAS(has & ~stored, i) && COUNTS(i, s) && R(i, s).sequence == n -> planned[i] = R(i, s).content
            :: else
            fi;
            s++
        :: else -> break
        od;
        i++
    :: else -> break
    od;
    i = 0; s = 0; stored = stored | has
}

/* Afterwards `planned` is what the members in `writing` are to store. */
inline judge_logs() {
    d_step {
        /* The highest that any of them says is settled. */
        above = 1; i = 0;
        do
        :: i < MEMBERS * SLOTS ->
            if
            :: HAS(SERVES, i / SLOTS) && COUNTS(i / SLOTS, i % SLOTS) && ring[i].settled > above -> above = ring[i].settled
            :: else
            fi;
            i++
        :: else -> break
        od;
        i = 0; stored = 0; n = UPDATES_MAX;
        do
        :: n >= above ->
            look_for(n);
            if
            :: has != 0 && lacking != 0 && !WITHOUT(COMPLETE_ONLY) ->
                /* Of an update before a complete one no record can be missing. */
                assert(stored == 0)
            :: has != 0 && (lacking == 0 || WITHOUT(COMPLETE_ONLY)) -> roll_forward(n)
            :: else
            fi;
            n--
        :: else -> break
        od;
        writing = stored; stored = 0; above = 0; has = 0; lacking = 0; n = 0
    }
}

/* ---- the engine ---- */

proctype engine() {
    byte mask, old0, old1;

    c_code {
        now.removed = atoi(getenv("REMOVED"));
        now.updates = atoi(getenv("UPDATES")); now.crashes = atoi(getenv("CRASHES"));
        now.losses = atoi(getenv("LOSSES")); now.returns = atoi(getenv("RETURNS"));
    };
    /* A new array: zeros, all in service, first incarnation. */
    d_step {
        now.generation = 1; now.incarnation = 1; now.tags = 1 + 4 + 16;
        sb_next.generation = 1; sb_next.incarnation = 1; sb_next.tags = now.tags;
        copy_superblock(0); copy_superblock(1); copy_superblock(2);
        sb_next.generation = 0; sb_next.incarnation = 0; sb_next.tags = 0;
        settled = 1;
    }

serve:
    skip;
    atomic {
        record_losses();
        /* Every read is right, whoever is missing. */
        assert(READ(0) == CONTENT(0, newest[0]) && READ(1) == CONTENT(1, newest[1]));
        if
        :: updates > 0 ->
            updates--;
            if :: mask = 1 :: mask = 2 :: mask = 3 fi;
            goto update
        :: oldest[0] != answered[0] || oldest[1] != answered[1] ->
            flush(here);
            ANYTHING_MAY_HAPPEN;
            if :: (ALL & ~here & ~now.out) == 0 -> oldest[0] = answered[0]; oldest[1] = answered[1] :: else fi;
            goto serve
        :: (here & now.out) != 0 && returns > 0 -> returns--; goto fill
        :: crashes > 0 -> crashes--; goto crash
        :: losses > 0 && SERVES == ALL -> lose_one(); goto serve
        :: goto end
        fi
    }

update:
    atomic {
    /* Space first: settling comes before the numbers. */
    do
    :: who < MEMBERS -> if :: HAS(SERVES & (mask | 4), who) -> make_room(who) :: else fi; who++
    :: else -> who = 0; break
    od;
    record_losses();
    /* Plan: what each holder will store. */
    d_step {
        sequence++;
        old0 = READ(0); old1 = READ(1);
        planned[0] = old0; planned[1] = old1;
        if :: HAS(mask, 0) -> newest[0]++; planned[0] = CONTENT(0, newest[0]) :: else fi;
        if :: HAS(mask, 1) -> newest[1]++; planned[1] = CONTENT(1, newest[1]) :: else fi;
        planned[2] = (HAS(SERVES, 2) -> VIEW(2) ^ old0 ^ old1 ^ planned[0] ^ planned[1] : 0);
        old0 = 0; old1 = 0;
        writing = SERVES & (mask | 4);
        b_sequence = sequence; b_holders = 0;
        if :: HAS(writing, 0) -> b_holders = b_holders | (TAG(now.tags, 0)) :: else fi;
        if :: HAS(writing, 1) -> b_holders = b_holders | (TAG(now.tags, 1) << 2) :: else fi;
        if :: HAS(writing, 2) -> b_holders = b_holders | (TAG(now.tags, 2) << 4) :: else fi;
        if :: WITHOUT(HOME_HOLDS) -> b_holders = b_holders & 48 :: else fi
    }
    if :: WITHOUT(ANSWER_AFTER_RECORD) -> answered[0] = newest[0]; answered[1] = newest[1] :: else fi;
    /* First round: the records, forced. */
    atomic {
        if :: HAS(writing, 0) && TAG(b_holders, 0) != 0 -> log_flying = log_flying | 1 :: else fi;
        if :: HAS(writing, 1) && TAG(b_holders, 1) != 0 -> log_flying = log_flying | 2 :: else fi;
        if :: HAS(writing, 2) && TAG(b_holders, 2) != 0 -> log_flying = log_flying | 4 :: else fi
    }
    ANYTHING_MAY_HAPPEN;
    if
    :: WITHOUT(ANSWER_AFTER_RECORD) -> flush(here); oldest[0] = answered[0]; oldest[1] = answered[1]; ANYTHING_MAY_HAPPEN
    :: else
    fi;
    if :: WITHOUT(RECORD_FORCED) :: else -> complete_records(); ANYTHING_MAY_HAPPEN fi;
    if :: WITHOUT(LOSS_BEFORE_PLACE) :: else -> record_losses() fi;
    /* Second round: in place, as far as the caches. */
    atomic {
        do
        :: i < MEMBERS -> if :: HAS(writing, i) -> write_in_place(i) :: else fi; i++
        :: else -> i = 0; break
        od
    }
    ANYTHING_MAY_HAPPEN;
    if :: WITHOUT(RECORD_FORCED) -> complete_records() :: else fi;
    record_losses();
    answered[0] = newest[0]; answered[1] = newest[1];
    writing = 0;
    goto forget
    }

fill:
    atomic {
    /* A member that was out comes back: everything is written to it anew, and it has a tag that no record names. */
    atomic {
        who = (HAS(here & now.out, 0) -> 0 : (HAS(here & now.out, 1) -> 1 : 2));
        planned[who] = VIEW((who + 1) % 3) ^ VIEW((who + 2) % 3);
        writing = BIT(who);
        write_in_place(who)
    }
    ANYTHING_MAY_HAPPEN;
    if :: WITHOUT(FILLED_DURABLY) :: else -> flush(here) fi;
    if
    :: HAS(here, who) ->
        begin_superblock();
        sb_next.out = now.out & ~BIT(who);
        sb_next.tags = now.tags + (1 << (2 * who));
        head[who] = 0;
        record_superblock();
        perhaps_out = perhaps_out & ~BIT(who)
    :: else
    fi;
    writing = 0;
    goto forget
    }

forget:
    skip;
    d_step {
        planned[0] = 0; planned[1] = 0; planned[2] = 0; b_sequence = 0; b_holders = 0; mask = 0; who = 0; lacking = 0
    }
    goto serve;

crash:
    skip;
    atomic {
        do
        :: gone < MEMBERS -> if :: HAS(here, gone) -> land(gone) :: else fi; gone++
        :: else -> gone = 0; break
        od;
        log_flying = 0; sb_flying = 0; dirty = 0; writing = 0; sequence = 0; settled = 1;
        head[0] = 0; head[1] = 0; head[2] = 0;
        planned[0] = 0; planned[1] = 0; planned[2] = 0; b_sequence = 0; b_holders = 0; mask = 0; who = 0; lacking = 0;
        now.generation = 0; now.incarnation = 0; now.out = 0; now.tags = 0;
        sb_next.generation = 0; sb_next.incarnation = 0; sb_next.out = 0; sb_next.tags = 0;
        /* While the power was off: more are lost, within the budget or not, and some come back as they were. */
        if :: losses > 0 && HAS(here, 0) -> losses--; here = here & ~1 :: !HAS(here, 0) -> here = here | 1 :: skip fi;
        if :: losses > 0 && HAS(here, 1) -> losses--; here = here & ~2 :: !HAS(here, 1) -> here = here | 2 :: skip fi;
        if :: losses > 0 && HAS(here, 2) -> losses--; here = here & ~4 :: !HAS(here, 2) -> here = here | 4 :: skip fi
    }

start:
    skip;
    atomic {
    /* Who speaks: the highest generation; on a tie who knows most members to be out, then the first. */
    d_step {
        i = 0; who = 3;
        do
        :: i < MEMBERS ->
            if
            :: !HAS(here, i)
            :: HAS(here, i) && who == 3 -> who = i
            :: HAS(here, i) && who != 3 && (sb[i].generation > sb[who].generation ||
                sb[i].generation == sb[who].generation && COUNT(sb[i].out) > COUNT(sb[who].out)) -> who = i
            :: else
            fi;
            i++
        :: else -> break
        od;
        i = 0;
    }
    if :: who == 3 -> who = 0; goto end :: else fi;
    d_step {
        now.generation = sb[who].generation; now.incarnation = sb[who].incarnation;
        now.out = sb[who].out; now.tags = sb[who].tags;
        /* Whom to believe: not who is out, nor who is further behind than a crash in the middle of an update explains,
           nor who says something else of the same generation. */
        t = 0;
        do
        :: i < MEMBERS ->
            if
            :: !HAS(here, i)
            :: HAS(here, i) && HAS(now.out, i) && !WITHOUT(OUT_NOT_BELIEVED)
            :: HAS(here, i) && (!HAS(now.out, i) || WITHOUT(OUT_NOT_BELIEVED)) &&
                sb[i].generation + 1 >= now.generation && (sb[i].generation < now.generation ||
                sb[i].incarnation == now.incarnation && sb[i].out == now.out && sb[i].tags == now.tags) -> t = t | BIT(i)
            :: else
            fi;
            i++
        :: else -> break
        od;
        i = 0; who = 0;
    }
    if
    :: COUNT(t) < 2 ->
        /* Refused: fewer than two are here that nobody ever called out. */
        assert(COUNT(here & ~perhaps_out) < 2);
        t = 0;
        goto end
    :: else
    fi;
    /* Those who are not believed are as good as not there. They are out in what is recorded next. */
    writing = t; t = 0;
    /* All know what the newest knows, before there is anything newer. */
    if
    :: WITHOUT(CAUGHT_UP)
    :: else ->
        sb_next.generation = now.generation; sb_next.incarnation = now.incarnation;
        sb_next.out = now.out; sb_next.tags = now.tags;
        sb_flying = writing;
        if :: crashes > 0 -> crashes--; goto crash :: skip fi;
        finish_superblock()
    fi;
    now.out = ALL & ~writing; writing = 0;
    judge_logs();
    if
    :: writing != 0 ->
        if :: WITHOUT(LOSS_BEFORE_REPLAY) :: else -> begin_superblock(); record_in_start() fi;
        atomic {
            do
            :: i < MEMBERS -> if :: HAS(writing, i) -> write_in_place(i) :: else fi; i++
            :: else -> i = 0; break
            od;
            writing = 0
        }
        if :: crashes > 0 -> crashes--; goto crash :: skip fi;
        if :: WITHOUT(FLUSH_AFTER_REPLAY) :: else -> flush(here) fi
    :: else
    fi;
    d_step { planned[0] = 0; planned[1] = 0; planned[2] = 0 }
    /* The start itself: what the logs say ends here. */
    begin_superblock();
    if :: WITHOUT(NEW_INCARNATION) :: else -> sb_next.incarnation = now.incarnation + 1 fi;
    record_in_start();
    /* What the client finds, it will find for ever. */
    d_step {
        assert(READ(0) == CONTENT(0, VERSION(0, READ(0))) && READ(1) == CONTENT(1, VERSION(1, READ(1))));
        assert(VERSION(0, READ(0)) >= oldest[0] && VERSION(0, READ(0)) <= newest[0]);
        assert(VERSION(1, READ(1)) >= oldest[1] && VERSION(1, READ(1)) <= newest[1]);
        assert(now.out != 0 || (VIEW(0) ^ VIEW(1)) == VIEW(2));
        newest[0] = VERSION(0, READ(0)); oldest[0] = newest[0]; answered[0] = newest[0];
        newest[1] = VERSION(1, READ(1)); oldest[1] = newest[1]; answered[1] = newest[1];
    }
    goto serve
    }

end:
    skip
}

init { run engine() }
