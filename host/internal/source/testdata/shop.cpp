namespace shop {

int discounts = 0;

enum class Kind : unsigned char { Plain, Gift = 3 };

template <typename T, int N> class List {
	T items[N];
	int used = 0;

public:
	void add(const T &item) { items[used++ % N] = item; }
	T &at(int i) { return items[i]; }
	int size() const { return used; }
};

struct Named {
	const char *name;
	virtual int price() const { return 0; }
};

struct Item : Named {
	static int made;
	Kind kind;
	int cents;
	union {
		int weight;
		char code[4];
	};
	unsigned gift : 1, fragile : 3;
	Item(const char *n, int c) : kind(Kind::Gift), cents(c), weight(65), gift(1), fragile(2) { name = n; made++; }
	int price() const override { return cents; }
	int half(int by) const;
};

int Item::made = 0;

int Item::half(int by) const {
	static int halved;
	int part = cents / by;
	halved++;
	discounts += part;
	if (discounts > 250)
		__builtin_trap();
	return part;
}

class Basket {
	List<Item *, 4> items;
	int sum = 0;

public:
	void add(Item &item) {
		items.add(&item);
		sum += item.price();
	}
	int total() {
		for (int i = 0; i < items.size(); i++) {
			Item &one = *items.at(i);
			sum -= one.half(10);
		}
		return sum;
	}
};

} // namespace shop

extern "C" __attribute__((export_name("run"))) int run(int count) {
	using namespace shop;
	Basket basket;
	Item item("book", 900);
	auto twice = [&](Item &one) { basket.add(one), basket.add(one); };
	for (int i = 0; i < count; i++)
		twice(item);
	return basket.total();
}
